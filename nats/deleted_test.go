package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
)

// A log records the events and states of a bus on the topic "orders".
type log struct {
	mu      sync.Mutex
	handled map[string]bool
	states  []string
}

func (l *log) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled[id]
}

// was reports whether the subscription has gone from state before to state now.
func (l *log) was(before, now string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := false
	for _, s := range l.states {
		seen = seen || s == before
	}
	return seen && l.states[len(l.states)-1] == now
}

// subscribed returns a bus with a member of the group g, and its log.
func (p *fixture) subscribed(t *testing.T) (*eventbus.Bus, *log) {
	l := &log{handled: map[string]bool{}}
	bus := p.bus(t, eventbus.Options{Observer: observer.Observer{StateChanged: func(c observer.StateChanged) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.states = append(l.states, string(c.To))
	}}})
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.handled[d.ID] = true
		return nil
	})
	require.NoError(t, err)
	return bus, l
}

// calm requires that the backend soon sends little: it does not retry a hopeless call
// without a pause.
func (p *fixture) calm(t *testing.T) {
	t.Helper()
	const watched, most = 3, 20 // seconds; messages in each
	var sent uint64
	for range 4 { // late settling sends messages too
		before := p.conn.Stats().OutMsgs
		time.Sleep(watched * time.Second)
		if sent = p.conn.Stats().OutMsgs - before; sent <= watched*most {
			return
		}
	}
	t.Fatalf("%d messages to the server in %d s, and as many before", sent, watched)
}

const heals = 20 * time.Second

// A waiting member learns at once that its consumer is deleted.
func TestConsumerDeletedUnderAWaitingMember(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*testing.T, *fixture) error{
		"consumer": func(t *testing.T, p *fixture) error { return p.js.DeleteConsumer(t.Context(), ordersStream, "g") },
		"stream":   func(t *testing.T, p *fixture) error { return p.js.DeleteStream(t.Context(), ordersStream) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, nats.Options{})
			src, err := p.b.Attach(t.Context(), member())
			require.NoError(t, err)
			got := make(chan error, 1)
			go func() {
				for {
					if _, err := src.Receive(t.Context(), 1, 0); err != nil {
						got <- err
						return
					}
				}
			}()
			require.NoError(t, remove(t, p))
			select {
			case err := <-got:
				require.ErrorIs(t, err, backend.ErrGone)
			case <-time.After(heals):
				t.Fatal("Receive has not noticed")
			}
			_, err = src.Receive(t.Context(), 1, 0)
			require.ErrorIs(t, err, backend.ErrGone, "nor does it come back by itself")
		})
	}
}

// A subscription recreates its deleted consumer, reports it, and is calm.
func TestConsumerDeletedUnderASubscription(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	bus, l := p.subscribed(t)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "before"}))
	require.Eventually(t, func() bool { return l.has("before") }, heals, time.Millisecond)
	require.NoError(t, p.js.DeleteConsumer(t.Context(), ordersStream, "g"))
	require.Eventually(t, func() bool { return l.was("degraded", "running") }, heals, time.Millisecond, "it runs again, and has said that it did not")
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "after"}))
	require.Eventually(t, func() bool { return l.has("after") }, heals, time.Millisecond)
	p.calm(t)
}

// A stream that is deleted under a member and a publisher is recreated. Messages published
// with success after that are handled.
func TestStreamDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	bus, l := p.subscribed(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var after []string
	var late atomic.Int64 // len(after)
	var deleted sync.Map  // true once the stream is deleted
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			_, isLate := deleted.Load(true)
			id := fmt.Sprint(i)
			switch err := bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}); {
			case err == nil && isLate:
				after = append(after, id)
				late.Add(1)
			case err != nil && !errors.Is(err, eventbus.ErrUnknownOutcome) && !errors.Is(err, eventbus.ErrUnavailable):
				t.Errorf("Publish: got error %v, want none or a typed one that passes", err)
			}
		}
	})
	require.Eventually(t, func() bool { return l.has("20") }, heals, time.Millisecond)
	require.NoError(t, p.js.DeleteStream(t.Context(), ordersStream))
	deleted.Store(true, true)
	require.Eventually(t, func() bool { return l.was("degraded", "running") }, heals, time.Millisecond)
	// A Publish that was under way may wait for its answer for five seconds.
	require.Eventually(t, func() bool { return late.Load() >= 20 }, heals, time.Millisecond)
	close(stop)
	wg.Wait()
	for _, id := range after {
		require.Eventually(t, func() bool { return l.has(id) }, heals, time.Millisecond, "%s was published after the stream was deleted", id)
	}
	p.calm(t)
}

// A stream that was replaced by an unsuitable one is neither used nor changed. The
// subscription retries now and then, and runs once the stream is suitable again.
func TestStreamReplaced(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	bus, l := p.subscribed(t)
	config := streamConfig()
	config.Retention = jetstream.WorkQueuePolicy
	require.NoError(t, p.js.DeleteStream(t.Context(), ordersStream))
	// The member may be faster, and recreate the stream first.
	require.Eventually(t, func() bool {
		_, err := p.js.CreateStream(t.Context(), config)
		if err != nil {
			require.NoError(t, p.js.DeleteStream(t.Context(), ordersStream))
		}
		return err == nil
	}, heals, time.Millisecond)
	require.Eventually(t, func() bool { return l.was("degraded", "degraded") }, heals, time.Millisecond)
	require.Error(t, bus.Ready(t.Context()))
	p.calm(t)
	s, err := p.js.Stream(t.Context(), ordersStream)
	require.NoError(t, err)
	require.Equal(t, jetstream.WorkQueuePolicy, s.CachedInfo().Config.Retention)
	require.Zero(t, s.CachedInfo().State.Consumers)

	require.NoError(t, p.js.DeleteStream(t.Context(), ordersStream))
	require.Eventually(t, func() bool { return l.was("degraded", "running") }, 2*heals, time.Millisecond)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "after"}))
	require.Eventually(t, func() bool { return l.has("after") }, heals, time.Millisecond)
}

// A publisher finds out that its stream was deleted, even if another program subscribes to
// the subject, so that the server does not report that nobody listens.
func TestDeletedStreamWithASubscriber(t *testing.T) {
	t.Parallel()
	b, _, _ := withoutStream(t)
	store := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return b.Publish(ctx, []*backend.Message{{Topic: "orders", ID: "x"}})
	}
	require.ErrorIs(t, store(), backend.ErrUnknownOutcome)
	require.NoError(t, store())
}

// withoutStream returns a backend with a lent connection. Its stream of the topic "orders" was
// deleted after a Publish. The channel gets every message to the server.
func withoutStream(t *testing.T) (*nats.Backend, *natsgo.Conn, <-chan *natsgo.Msg) {
	s := natstest.Start(t)
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := nats.New(conn, nats.Options{Namespace: "shop"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "first"}}))
	seen := make(chan *natsgo.Msg, 1000)
	_, err = conn.ChanSubscribe(">", seen)
	require.NoError(t, err)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "shop=orders"))
	return b, conn, seen
}

// After Close of a backend with a lent connection, nothing of it subscribes to the server,
// although a call was under way.
func TestCloseLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	b, conn, seen := withoutStream(t)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	go func() { ended <- b.Publish(ctx, []*backend.Message{{Topic: "orders", ID: "x"}}) }()
	for m := range seen {
		if strings.HasPrefix(m.Subject, "shop.") { // the call is under way
			break
		}
	}
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-ended, backend.ErrUnknownOutcome)
	require.Eventually(t, func() bool { return conn.NumSubscriptions() == 2 }, 5*time.Second, time.Millisecond, "those of withoutStream are left")
}

// A message beyond the end of its topic is removed already, in both kinds of storage.
func TestRemoveBeyondTheEnd(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
		conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		b, err := nats.New(conn, nats.Options{Namespace: strings.ToLower(storage.String()), Storage: storage})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		m := &backend.Message{Topic: "orders", ID: "x"}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		beyond := strings.Repeat("0", len(m.Position)-3) + "999"
		require.NoError(t, b.Remove(t.Context(), "orders", []string{beyond}))
		require.NoError(t, b.Remove(t.Context(), "orders", []string{m.Position, m.Position}))
		require.NoError(t, b.Remove(t.Context(), "orders", []string{m.Position}))
	}
}
