package nats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A crashed server does not answer the acknowledgement of a delivery that it has
// forgotten. Ack finds that out soon, without waiting for its context's end.
func TestAckOfWhatIsForgotten(t *testing.T) {
	t.Parallel()
	for _, confirm := range []bool{true, false} {
		t.Run(fmt.Sprintf("confirm=%v", confirm), func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			b, err := as(t, server, "")
			require.NoError(t, err)
			s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Second, ConfirmAcks: confirm})
			require.NoError(t, err)
			var ms []*backend.Message
			for i := range 20000 {
				ms = append(ms, &backend.Message{Topic: topic, ID: fmt.Sprint(i)})
			}
			for some := range slices.Chunk(ms, 1000) {
				require.NoError(t, b.Publish(t.Context(), some))
			}
			// Whether the server has written its last deliveries to disk is chance.
			for range 8 {
				if forgets(t, server, b, s) {
					return
				}
			}
			t.Fatal("the server has forgotten nothing in eight crashes")
		})
	}
}

// forgets crashes the server after a delivery. It reports whether Ack says that the server
// has forgotten the delivery.
func forgets(t *testing.T, server *natstest.Server, b *nats.Backend, s backend.Source) bool {
	t.Helper()
	var last []backend.Delivery
	for range 20 {
		ds, err := s.Receive(t.Context(), 10, 0)
		require.NoError(t, err)
		require.NotEmpty(t, ds)
		if last != nil {
			require.NoError(t, s.Ack(t.Context(), backend.Lend(last)))
		}
		last = slices.Clone(ds) // Receive reuses their memory
	}
	server.Kill()
	server.Run()
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 20*time.Second, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Ack(ctx, backend.Lend(last))
	require.NoError(t, ctx.Err())
	if err == nil {
		return false
	}
	for i := range last {
		if err := backend.ErrorAt(err, i); err != nil {
			require.ErrorIs(t, err, backend.ErrLeaseLost)
		}
	}
	return true
}

// A storm publishes events over one backend, and resets the connection of another one while
// the server answers its pulls.
type storm struct {
	*rig
	publisher backend.Backend
	consumer  jetstream.Consumer
	events    int // published so far
}

const (
	stormKeys = 50
	stormTurn = 100 // events of one turn
)

func newStorm(t *testing.T, r *rig, server *natstest.Server, o nats.Options) *storm {
	return &storm{rig: r, publisher: r.open(t, o, alone(server))}
}

func (s *storm) watch(t *testing.T, stream, consumer string) {
	c, err := s.Link(s.publisher).admin(t).Consumer(t.Context(), stream, consumer)
	require.NoError(t, err)
	s.consumer = c
}

func (s *storm) publish(t *testing.T) {
	ms := make([]*backend.Message, stormTurn)
	for i := range ms {
		ms[i] = &backend.Message{Topic: "orders", ID: fmt.Sprint(s.events), Key: fmt.Sprint(s.events % stormKeys)}
		s.events++
	}
	require.NoError(t, s.publisher.Publish(t.Context(), ms))
}

// delivered returns the number of deliveries of the server.
func (s *storm) delivered(t *testing.T) uint64 {
	info, err := s.consumer.Info(t.Context())
	require.NoError(t, err)
	return info.Delivered.Consumer
}

// reset publishes events, and resets the connection of b before it gets them. It reports
// whether the server has sent some of them to b.
func (s *storm) reset(t *testing.T, b backend.Backend) (lost bool) {
	before := s.delivered(t)
	var thaws []func()
	s.Each(b, func(p *faultproxy.Proxy) { thaws = append(thaws, p.Freeze()) })
	s.publish(t)
	for until := time.Now().Add(time.Second); !lost && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		lost = s.delivered(t) > before
	}
	s.Each(b, (*faultproxy.Proxy).Cut)
	for _, thaw := range thaws {
		thaw()
	}
	return lost
}

// A taking is a delivery that a member has received at the time from, and acknowledged at
// the time until, or held until its lease ended.
type taking struct {
	position, key string
	from, until   time.Time
}

// A taker is a member that receives and acknowledges all deliveries.
type taker struct {
	src   backend.Source
	lease time.Duration
	run   time.Duration // time between both

	mu    sync.Mutex
	taken []taking
}

func (k *taker) consume(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		ds, err := k.src.Receive(ctx, 64, 0)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
		from := time.Now()
		time.Sleep(k.run)
		for all := backend.Lend(ds); len(all) > 0 && k.src.Ack(ctx, all) != nil && ctx.Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
		until := time.Now()
		if end := asked.Add(k.lease); end.Before(until) {
			until = end
		}
		k.mu.Lock()
		for _, d := range ds {
			k.taken = append(k.taken, taking{d.Position, d.Key, from, until})
		}
		k.mu.Unlock()
	}
}

func (k *taker) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.taken)
}

// A member that is alone receives the events of each key in order, although its connection
// is reset while the server answers its pulls. Nothing waits for the end of a lease.
func TestLostDeliveriesComeFirst(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nats.Options{"own stream": {}, "shared stream": {Stream: "all"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			r := new(rig)
			s, b := newStorm(t, r, server, o), r.open(t, o, alone(server))
			k := &taker{lease: time.Hour}
			var notices atomic.Int64
			var err error
			k.src, err = b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: k.lease, Notify: func(n backend.Notice) {
				notices.Add(1)
				t.Log(n.Text)
			}})
			require.NoError(t, err)
			if o.Stream == "" {
				s.watch(t, "bus=orders", "g")
			} else {
				s.watch(t, "all", "orders=g")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { k.consume(ctx) })
			wg.Go(func() { // it sees no other member
				for ctx.Err() == nil {
					_, _ = b.(backend.Maintainer).Maintain(ctx, "orders", "g") // fails while there is no connection
				}
			})
			all := func() bool { return k.count() >= s.events }
			lost := 0
			for s.events < 2000 {
				time.Sleep(20 * time.Millisecond) // a pull waits
				if s.reset(t, b) {
					lost++
				}
				require.Eventually(t, all, 30*time.Second, time.Millisecond, "an event does not come before the end of its lease")
			}
			cancel()
			wg.Wait()
			require.Len(t, k.taken, s.events)
			require.Greater(t, lost, 10, "resets that lost deliveries")
			last := map[string]string{}
			for _, e := range k.taken {
				require.Greater(t, e.position, last[e.key], "key %s", e.key)
				last[e.key] = e.position
			}
			require.Zero(t, notices.Load())
			t.Logf("%d of %d resets lost deliveries", lost, s.events/stormTurn)
		})
	}
}

// If the connection of one of two members is reset, no event that a member holds is given
// to the other one.
func TestLostDeliveriesOfOneOfTwo(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := new(rig)
	s, b, other := newStorm(t, r, server, nats.Options{}), r.open(t, nats.Options{}, alone(server)), r.open(t, nats.Options{}, alone(server))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var members []*taker
	var wg sync.WaitGroup
	for _, b := range []backend.Backend{b, other} {
		k := &taker{lease: 3 * time.Second, run: 100 * time.Millisecond}
		var err error
		k.src, err = b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: k.lease})
		require.NoError(t, err)
		members = append(members, k)
		wg.Go(func() { k.consume(ctx) })
	}
	s.watch(t, "bus=orders", "g")
	for s.events < 2000 {
		time.Sleep(20 * time.Millisecond)
		s.reset(t, b)
	}
	require.Eventually(t, func() bool {
		seen := map[string]bool{}
		for _, k := range members {
			k.mu.Lock()
			for _, e := range k.taken {
				seen[e.position] = true
			}
			k.mu.Unlock()
		}
		return len(seen) == s.events
	}, 30*time.Second, 10*time.Millisecond)
	cancel()
	wg.Wait()
	held := map[string][]taking{}
	for _, k := range members {
		for _, e := range k.taken {
			for _, f := range held[e.position] {
				require.False(t, e.from.Before(f.until) && f.from.Before(e.until), "%s is held twice: %v to %v and %v to %v", e.position, e.from, e.until, f.from, f.until)
			}
			held[e.position] = append(held[e.position], e)
		}
	}
	t.Logf("%d and %d deliveries of %d events", members[0].count(), members[1].count(), s.events)
}

// Even delayed messages that are lost on their way come before all later messages.
func TestLostRetriesComeFirst(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	r := new(rig)
	s, b := newStorm(t, r, server, nats.Options{}), r.open(t, nats.Options{}, alone(server))
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour})
	require.NoError(t, err)
	s.watch(t, "bus=orders", "g")
	s.publish(t)
	var ds []backend.Delivery
	for len(ds) < stormTurn {
		some, err := src.Receive(t.Context(), stormTurn, 0)
		require.NoError(t, err)
		ds = append(ds, some...)
	}
	const pause = 300 * time.Millisecond
	var back []backend.Delayed
	for _, d := range ds {
		back = append(back, backend.Delayed{Delivery: d, For: pause})
	}
	require.NoError(t, src.(backend.Delayer).Delay(t.Context(), back))
	before := s.delivered(t)
	time.Sleep(pause / 2)
	received := make(chan []backend.Delivery, 1)
	go func() {
		some, _ := src.Receive(t.Context(), stormTurn, 0)
		received <- some
	}()
	require.Eventually(t, func() bool { // the server has the pull, however busy the machine is
		info, err := s.consumer.Info(t.Context())
		return err == nil && info.NumWaiting > 0
	}, 20*time.Second, 5*time.Millisecond)
	var thaws []func()
	s.Each(b, func(p *faultproxy.Proxy) { thaws = append(thaws, p.Freeze()) })
	require.Eventually(t, func() bool { return s.delivered(t) > before }, 5*time.Second, time.Millisecond, "the pull has ended before a message is due")
	s.publish(t)
	s.Each(b, (*faultproxy.Proxy).Cut)
	for _, thaw := range thaws {
		thaw()
	}
	got := slices.Clone(<-received) // Receive reuses their memory
	for until := time.Now().Add(20 * time.Second); len(got) < s.events && time.Now().Before(until); {
		some, _ := src.Receive(t.Context(), stormTurn, 0) // fails while there is no connection
		got = append(got, some...)
	}
	require.Equal(t, s.events, len(got))
	for i := range got {
		require.Equal(t, fmt.Sprint(i), got[i].ID)
	}
}

// A Delay whose outcome is unknown can be repeated by a member that is alone. The message
// comes once, and does not wait for the end of its lease.
func TestDelayAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration // of the Delay
		wait  time.Duration // before the repetition
		sent  bool          // the server has received the first Delay
	}{
		"done, repeated before it is due": {time.Second, 0, true},
		"done, repeated when it is due":   {50 * time.Millisecond, 300 * time.Millisecond, true},
		"lost, repeated before it is due": {time.Second, 0, false},
		"lost, repeated when it is due":   {50 * time.Millisecond, 300 * time.Millisecond, false},
		"done, given back":                {0, 0, true},
		"lost, given back":                {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, server := new(rig), natstest.Start(t)
			b := r.open(t, nats.Options{}, alone(server))
			src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour})
			require.NoError(t, err)
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
			ds, err := src.Receive(t.Context(), 10, 0)
			require.NoError(t, err)
			require.Len(t, ds, 1)
			ds = slices.Clone(ds) // Receive reuses their memory

			delay := func(pause time.Duration) error {
				return src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: pause}})
			}
			p := r.Link(b).current()
			began := time.Now()
			if c.sent {
				p.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte("-NAK")) })
			} else {
				thaw := p.Freeze()
				time.AfterFunc(100*time.Millisecond, func() { p.Cut(); thaw() })
			}
			require.ErrorIs(t, backend.ErrorAt(delay(c.pause), 0), backend.ErrUnknownOutcome)
			time.Sleep(c.wait)
			require.Eventually(t, func() bool {
				err = delay(max(c.pause-time.Since(began), 0))
				return !errors.Is(err, backend.ErrUnavailable)
			}, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, err)

			var again []backend.Delivery
			for until := time.Now().Add(20 * time.Second); len(again) == 0 && time.Now().Before(until); {
				again, err = src.Receive(t.Context(), 10, 0)
				require.NoError(t, err)
			}
			require.Len(t, again, 1)
			require.GreaterOrEqual(t, time.Since(began), c.pause)
			ds[0] = again[0]
			for range 2 { // half a second each
				more, err := src.Receive(t.Context(), 10, 0)
				require.NoError(t, err)
				require.Empty(t, more, "it comes once")
			}
			require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
		})
	}
}

// If there is another member, a Delay of unknown outcome that may be due by now is not
// repeated, because the other member may have the message.
func TestDelayAfterAnUnknownOutcomeOfOneOfTwo(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b, other := r.open(t, nats.Options{}, alone(server)), r.open(t, nats.Options{}, alone(server))
	c := backend.Config{Topic: "orders", Group: "g", Lease: time.Hour}
	src, err := b.Attach(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
	ds, err := src.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	ds = slices.Clone(ds) // Receive reuses their memory
	peer, err := other.Attach(t.Context(), c)
	require.NoError(t, err)

	back := []backend.Delayed{{Delivery: ds[0], For: 50 * time.Millisecond}}
	r.Link(b).current().DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte("-NAK")) })
	require.ErrorIs(t, backend.ErrorAt(src.(backend.Delayer).Delay(t.Context(), back), 0), backend.ErrUnknownOutcome)
	var taken []backend.Delivery
	for until := time.Now().Add(10 * time.Second); len(taken) == 0 && time.Now().Before(until); {
		taken, err = peer.Receive(t.Context(), 10, 0)
		require.NoError(t, err)
	}
	require.Len(t, taken, 1)
	require.Eventually(t, func() bool {
		err = src.(backend.Delayer).Delay(t.Context(), back)
		return !errors.Is(err, backend.ErrUnavailable)
	}, 20*time.Second, 10*time.Millisecond)
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrLeaseLost)
	for reads := 0; reads < 3; {
		more, err := src.Receive(t.Context(), 10, 0)
		require.Empty(t, more, "the other member has it")
		if errors.Is(err, backend.ErrUnavailable) { // the connection is being made again
			time.Sleep(10 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		reads++
	}
}

// An Ack whose outcome is unknown ends no lease: the message may still be pending, so the
// member continues to extend the lease, and repeats the Ack.
func TestExtendAfterAnUnknownAck(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(server))
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
	ds, err := src.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	ds = slices.Clone(ds) // Receive reuses their memory

	p := r.Link(b).current()
	thaw := p.Freeze()
	time.AfterFunc(100*time.Millisecond, func() { p.Cut(); thaw() })
	require.ErrorIs(t, backend.ErrorAt(src.Ack(t.Context(), backend.Lend(ds)), 0), backend.ErrUnknownOutcome)

	again := func(call func(context.Context, []*backend.Delivery) error) {
		require.Eventually(t, func() bool {
			err = call(t.Context(), backend.Lend(ds))
			return !errors.Is(err, backend.ErrUnavailable)
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, err)
	}
	again(src.(backend.Extender).Extend)
	err = src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Second}})
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrLeaseLost, "it may be acknowledged")
	again(src.Ack)
}

// A new leader of a consumer has forgotten which messages were given back. It delivers them when
// their leases have ended, after new messages. The new owner of a partition waits for them.
func TestNewOwnerAfterNewLeader(t *testing.T) {
	t.Parallel()
	const lease, given, published = 10 * time.Second, 3, 5
	r, o := new(rig), clustered()
	b := r.open(t, o, clusterOf(natstest.StartCluster(t)))
	bus, err := eventbus.New(b, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 1}}})
	require.NoError(t, err)
	publish := func(n int) {
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(n), Key: "k"}))
	}
	earlier, err := b.Attach(t.Context(), backend.Config{Topic: "orders.partition-0", Group: "g", Start: backend.StartEarliest, Lease: lease / 2})
	require.NoError(t, err)
	for n := range given {
		publish(n)
	}
	var held []backend.Delayed
	for len(held) < given {
		ds, err := earlier.Receive(t.Context(), given, 0)
		require.NoError(t, err)
		for _, d := range ds {
			held = append(held, backend.Delayed{Delivery: d})
		}
	}
	require.NoError(t, earlier.(backend.Delayer).Delay(t.Context(), held))
	require.NoError(t, earlier.Close())
	stepDown(t, r.Link(b).admin(t), o.Namespace+"=orders+partition-0", "g")
	for n := given; n < published; n++ {
		publish(n)
	}

	got := make(chan string, 2*published)
	_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Lease: lease}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.ID
		return nil
	})
	require.NoError(t, err)
	for n := range published {
		require.Equal(t, strconv.Itoa(n), <-got)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
}

// stepDown makes another server the leader of a consumer.
func stepDown(t *testing.T, js jetstream.JetStream, stream, consumer string) {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	c, err := s.Consumer(t.Context(), consumer)
	require.NoError(t, err)
	before := c.CachedInfo().Cluster.Leader
	m, err := js.Conn().RequestWithContext(t.Context(), "$JS.API.CONSUMER.LEADER.STEPDOWN."+stream+"."+consumer, nil)
	require.NoError(t, err)
	var answer struct{ Success bool }
	require.NoError(t, json.Unmarshal(m.Data, &answer))
	require.True(t, answer.Success, string(m.Data))
	require.Eventually(t, func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.Cluster.Leader != "" && info.Cluster.Leader != before
	}, 20*time.Second, 50*time.Millisecond)
}

// A group without a leader prevents purges of its topic, because its progress is unknown,
// until it is deleted. It does not prevent purges of other topics in the same stream.
func TestGroupWithoutLeader(t *testing.T) {
	t.Parallel()
	r, o := new(rig), clustered()
	o.Stream = "events"
	b := r.open(t, o, clusterOf(natstest.StartCluster(t)))
	members := map[string]backend.Source{}
	for _, topic := range []string{"well", "ill"} {
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: "g", Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic}}))
		members[topic] = s
	}
	l := r.Link(b)
	js := l.admin(t)
	lost, err := js.CreateConsumer(t.Context(), "events", jetstream.ConsumerConfig{
		Durable: "ill=lost", FilterSubject: o.Namespace + ".ill", AckPolicy: jetstream.AckExplicitPolicy, Replicas: 1,
	})
	require.NoError(t, err)
	leader := lost.CachedInfo().Cluster.Leader
	killed := false
	for _, s := range l.servers {
		if s.Name() == leader {
			s.Kill()
			killed = true
		}
	}
	require.True(t, killed, leader)
	require.Eventually(t, func() bool { // the other two elect leaders
		for _, topic := range []string{"well", "ill"} {
			ds, err := members[topic].Receive(t.Context(), 1, 0)
			if err == nil && len(ds) > 0 {
				err = members[topic].Ack(t.Context(), backend.Lend(ds))
			}
			if err != nil {
				return false
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond)

	maintain := func(topic string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := b.(backend.Maintainer).Maintain(ctx, topic, "g")
		return err
	}
	left := func(topic string) bool {
		s, err := b.(backend.Statser).Stats(t.Context(), topic, "g")
		return err != nil || s.Depth > 0
	}
	require.Eventually(t, func() bool { return maintain("well") == nil && !left("well") }, time.Minute, 100*time.Millisecond)
	err = maintain("ill")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "ill=lost")
	require.True(t, left("ill"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = js.DeleteConsumer(ctx, "events", "ill=lost") // deletes it, but its server does not answer
	require.Eventually(t, func() bool { return maintain("ill") == nil && !left("ill") }, time.Minute, 100*time.Millisecond)
}
