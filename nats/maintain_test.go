package nats_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A watched is a member of the group g of the topic orders, with its notices.
type watched struct {
	*testing.T
	*fixture
	backend.Source

	mu      sync.Mutex
	notices []string
}

func watch(t *testing.T, p *fixture) *watched {
	w := &watched{T: t, fixture: p}
	c := member()
	c.Notify = func(n backend.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Equal(t, []string{"orders", "g"}, []string{n.Topic, n.Group})
		w.notices = append(w.notices, n.Text)
	}
	var err error
	w.Source, err = p.b.Attach(t.Context(), c)
	require.NoError(t, err)
	w.maintain()
	return w
}

func (w *watched) maintain() {
	_, err := w.b.Maintain(w.Context(), "orders", "g")
	require.NoError(w, err)
}

func (w *watched) publish(topic string, n int) (ms []*backend.Message) {
	for range n {
		ms = append(ms, &backend.Message{Topic: topic})
	}
	require.NoError(w, w.b.Publish(w.Context(), ms))
	return ms
}

func (w *watched) receive(n int) (ds []backend.Delivery) {
	require.Eventually(w, func() bool {
		some, err := w.Receive(w.Context(), n-len(ds), 0)
		require.NoError(w, err)
		ds = append(ds, some...)
		return len(ds) == n
	}, 30*time.Second, time.Millisecond)
	return ds
}

func (w *watched) settle(n int) { require.NoError(w, w.Ack(w.Context(), backend.Lend(w.receive(n)))) }

func (w *watched) purge(stream string, o ...jetstream.StreamPurgeOpt) {
	s, err := w.js.Stream(w.Context(), stream)
	require.NoError(w, err)
	require.NoError(w, s.Purge(w.Context(), o...))
}

// If an operator purges messages that a group did not get, one notice says how many.
func TestNoticeOfAPurge(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options nats.Options
		stream  string
		purge   []jetstream.StreamPurgeOpt
		missing string
	}{
		"all":    {nats.Options{}, ordersStream, nil, "97 messages"},
		"some":   {nats.Options{}, ordersStream, []jetstream.StreamPurgeOpt{jetstream.WithPurgeKeep(40)}, "57 messages"},
		"shared": {nats.Options{Stream: "events"}, "events", []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(ordersSubject)}, "97 messages"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, newFixture(t, row.options))
			w.publish("orders", 50)
			w.publish("other", 20)
			w.publish("orders", 50)
			w.settle(3)
			w.maintain()
			w.purge(row.stream, row.purge...)
			w.maintain()
			w.publish("orders", 5)
			w.settle(5)
			w.maintain()
			require.Len(t, w.notices, 1)
			require.Contains(t, w.notices[0], row.missing)
		})
	}
}

// A group that got all messages gets no notice of missing ones.
func TestNoNoticeOfAPurge(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(w *watched){
		"settled by a group, purged by Maintain": func(w *watched) {
			for range 3 {
				w.publish("orders", 20)
				w.settle(20)
				w.maintain()
			}
		},
		"purged when settled": func(w *watched) {
			w.publish("orders", 20)
			w.settle(20)
			w.purge(ordersStream)
		},
		"redelivered": func(w *watched) {
			w.publish("orders", 20)
			for range 3 {
				var all []backend.Delayed
				for _, d := range w.receive(20) {
					all = append(all, backend.Delayed{Delivery: d})
				}
				require.NoError(w, w.Source.(backend.Delayer).Delay(w.Context(), all))
				w.maintain()
			}
			w.settle(20)
		},
		"removed by the backend": func(w *watched) {
			ms := w.publish("orders", 20)
			require.NoError(w, w.b.Remove(w.Context(), "orders", []string{ms[0].Position, ms[1].Position, ms[10].Position}))
			w.maintain()
			w.settle(17)
		},
		"group reset": func(w *watched) {
			w.publish("orders", 20)
			require.NoError(w, w.b.ResetGroup(w.Context(), "orders", "g", backend.StartLatest))
			w.maintain()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, newFixture(t, nats.Options{}))
			story(w)
			w.maintain()
			w.publish("orders", 5)
			w.settle(5)
			w.maintain()
			require.Empty(t, w.notices)
		})
	}
}

// Topics of a shared stream do not disturb each other.
func TestNoNoticeInASharedStream(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{Stream: "events"}))
	for range 3 {
		w.publish("other", 20)
		w.publish("orders", 20)
		w.publish("other", 20)
		w.maintain()
		w.settle(20)
		w.purge("events", jetstream.WithPurgeSubject("bus.other"))
		w.maintain()
	}
	require.Empty(t, w.notices)
}

// A purge considers every group, although groups come and go while it reads the pages of a
// long list. Messages that a group has not settled stay.
func TestPurgeSeesEveryGroup(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{Stream: "events"})
	b, config := p.b, streamConfig()
	config.Name, config.Subjects, config.MaxConsumers = "events", []string{"bus.>"}, 5000
	_, err := p.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	attach := func(topic, group string) backend.Source {
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
		require.NoError(t, err)
		return s
	}
	// A page has 1,024 names: the slow group is the first of the second page.
	for i := range 1022 {
		require.NoError(t, attach(fmt.Sprintf("f%04d", i), "g").Close())
	}
	fast := attach("v", "fast")
	require.NoError(t, attach("v", "slow").Close())
	var ms []*backend.Message
	for i := range 10 {
		ms = append(ms, &backend.Message{Topic: "v", ID: fmt.Sprint(i)})
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	ds, err := fast.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.NoError(t, fast.Ack(t.Context(), backend.Lend(ds)))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a group that sorts first comes and goes
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			s, err := b.Attach(t.Context(), backend.Config{Topic: "a", Group: "g", Lease: time.Minute})
			if err == nil {
				_ = s.Close()
				err = b.DeleteGroup(t.Context(), "a", "g")
			}
			if err != nil {
				t.Errorf("a group that comes and goes: %v", err)
				return
			}
		}
	}()
	for range 60 {
		if _, err := b.Maintain(t.Context(), "v", "fast"); err != nil {
			require.ErrorIs(t, err, backend.ErrUnavailable)
		}
	}
	close(stop)
	<-stopped
	stats, err := b.Stats(t.Context(), "v", "slow")
	require.NoError(t, err)
	require.EqualValues(t, 10, stats.Depth)
	require.EqualValues(t, 10, stats.Lag)
}

// If two members set a lease at the same time, the longer one may be overwritten. Maintain
// restores it.
func TestLeaseIsRaisedAgain(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	b, _ := nats.New(p.conn, nats.Options{})
	s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute})
	require.NoError(t, err)
	c, err := p.js.Consumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	config := c.CachedInfo().Config
	config.AckWait = 10 * time.Second
	_, err = p.js.UpdateConsumer(t.Context(), ordersStream, config)
	require.NoError(t, err)
	_, err = b.Maintain(t.Context(), "orders", "g")
	require.NoError(t, err)
	c, err = p.js.Consumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	require.Equal(t, time.Minute, c.CachedInfo().Config.AckWait)
	require.NoError(t, s.Close())
	require.NoError(t, b.Close())
}

// A purge does not make the server forget due messages: they are redelivered at once, not
// when their lease expires.
func TestPurgeForgetsNothingThatIsDue(t *testing.T) {
	t.Parallel()
	b, err := as(t, natstest.Start(t), "")
	require.NoError(t, err)
	s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Minute})
	require.NoError(t, err)
	var ms []*backend.Message
	for range 20 {
		ms = append(ms, &backend.Message{Topic: topic})
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	ds, err := s.Receive(t.Context(), 20, 0)
	require.NoError(t, err)
	require.Len(t, ds, 20)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[:10])))
	var later []backend.Delayed
	for _, d := range ds[10:] {
		later = append(later, backend.Delayed{Delivery: d, For: time.Millisecond})
	}
	require.NoError(t, s.(backend.Delayer).Delay(t.Context(), later))
	<-time.After(300 * time.Millisecond) // most likely due by now
	_, err = b.Maintain(t.Context(), topic, group)
	require.NoError(t, err)
	back := 0
	for start := time.Now(); back < 10 && time.Since(start) < time.Minute; {
		ds, err := s.Receive(t.Context(), 20, 0)
		require.NoError(t, err)
		back += len(ds)
	}
	require.Equal(t, 10, back)
	require.NoError(t, s.Ack(t.Context(), nil))
}
