package nats_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

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
	c, err := s.line(s.publisher).admin(t).Consumer(t.Context(), stream, consumer)
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
	s.each(b, func(p *faultproxy.Proxy) { thaws = append(thaws, p.Freeze()) })
	s.publish(t)
	for until := time.Now().Add(time.Second); !lost && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		lost = s.delivered(t) > before
	}
	s.each(b, (*faultproxy.Proxy).Cut)
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

// Delayed messages that are lost on their way also come before all later messages.
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
	time.Sleep(20 * time.Millisecond)
	var thaws []func()
	s.each(b, func(p *faultproxy.Proxy) { thaws = append(thaws, p.Freeze()) })
	require.Eventually(t, func() bool { return s.delivered(t) > before }, 5*time.Second, time.Millisecond, "the pull has ended before a message is due")
	s.publish(t)
	s.each(b, (*faultproxy.Proxy).Cut)
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
