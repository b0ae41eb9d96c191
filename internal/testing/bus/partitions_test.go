package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/process"
	"github.com/seed41896749/eventbus/observer"
)

// inPartitions runs f in a bubble of synctest, with a backend in memory and a function that opens
// the bus of another process on it.
func inPartitions(t *testing.T, n int, f func(t *testing.T, b *inmemory.Backend, open func() (*eventbus.Bus, *process.Process))) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		defer func() { require.NoError(t, b.Close()) }()
		var buses []*eventbus.Bus
		defer func() {
			for _, bus := range buses {
				_ = bus.Shutdown(context.WithoutCancel(t.Context()))
			}
		}()
		f(t, b, func() (*eventbus.Bus, *process.Process) {
			p := &process.Process{Backend: b}
			bus, err := eventbus.New(p, eventbus.Options{
				Observer: observer.Observer{Failed: func(observer.Failed) {}},
				Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: n}},
			})
			require.NoError(t, err)
			buses = append(buses, bus)
			return bus, p
		})
	})
}

func TestPartitionsAreChecked(t *testing.T) {
	with := func(n int) eventbus.Options {
		return eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: n}}}
	}
	for _, n := range []int{-1, 1025} {
		_, err := eventbus.New(inmemory.New(inmemory.Options{}), with(n))
		require.ErrorContains(t, err, fmt.Sprintf("Options.Topics of orders: Partitions is %d, want 1 to 1024", n))
	}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), with(4))
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	subscribe := func(topic string, o eventbus.SubscribeOptions) error {
		o.Group = "g"
		_, err := bus.Subscribe(t.Context(), topic, o, succeed)
		return err
	}
	for _, name := range []string{"orders.partition-3", "orders.partitions", "a.partitions.owners"} {
		require.ErrorContains(t, subscribe(name, eventbus.SubscribeOptions{}), "is reserved for the partitions")
		require.ErrorContains(t, bus.Publish(t.Context(), name, &eventbus.Event{}), "is reserved for the partitions")
	}
	for want, err := range map[string]error{
		"orders has partitions, so it needs a subscription of its own": subscribe("*", eventbus.SubscribeOptions{}),
		"needs 1 partition, and orders has 4":                          subscribe("orders", eventbus.SubscribeOptions{Order: eventbus.OrderTotal}),
		"Lease is 1s, less than 3s, which partitions need":             subscribe("orders", eventbus.SubscribeOptions{Lease: time.Second}),
		"Start is a position, but each partition has its own":          subscribe("orders", eventbus.SubscribeOptions{Start: backend.StartAfter("1")}),
	} {
		require.ErrorContains(t, err, want)
	}
}

// When a program with a backend in memory ends, it reports the events that are lost, but not
// the partition tokens.
func TestTokensAreNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
			Observer: observer.Observer{Noticed: func(n observer.Noticed) { told = append(told, n.Topic) }},
			Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: 4}},
		})
		require.NoError(t, err)
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, succeed)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Len(t, s.Partitions(), 4)
		require.NoError(t, s.Drain(t.Context()))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: "k"}))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Len(t, told, 1)
		require.Regexp(t, `^orders.partition-\d$`, told[0])
	})
}

// When a frozen owner continues, it makes no call for its partitions, because its clock shows
// that another member may have them. It settles, extends and receives nothing.
func TestFrozenOwnerLooksAtItsClock(t *testing.T) {
	inPartitions(t, 2, func(t *testing.T, b *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		spy := &spy{Backend: b}
		p := &process.Process{Backend: spy}
		bus, err := eventbus.New(p, eventbus.Options{
			Observer: observer.Observer{Failed: func(observer.Failed) {}},
			Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: 2}},
		})
		require.NoError(t, err)
		const lease = 30 * time.Second
		ended := make(chan error, 1)
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Lease: lease}, func(ctx context.Context, _ *eventbus.Delivery) error {
			if !p.Wait() {
				return errors.New("dead")
			}
			select {
			case <-ctx.Done():
				ended <- context.Cause(ctx)
			case <-time.After(time.Minute):
			}
			return nil
		})
		require.NoError(t, err)
		for i := range 10 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: fmt.Sprint(i)}))
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, []int{0, 1}, s.Partitions())
		defer p.Thaw()
		p.Freeze()
		time.Sleep(lease)
		require.Empty(t, s.Partitions())
		require.ErrorIs(t, <-ended, eventbus.ErrLeaseLost)
		spy.calls.Store(0)
		other, _ := open()
		var handled atomic.Int64
		two, err := other.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Lease: lease}, func(context.Context, *eventbus.Delivery) error {
			handled.Add(1)
			return nil
		})
		require.NoError(t, err)
		time.Sleep(6 * time.Second) // until the member that is silent is not a member anymore
		require.Len(t, two.Partitions(), 2)
		require.EqualValues(t, 10, handled.Load(), "the events of a frozen owner are due when its token is")
		p.Thaw()
		synctest.Wait()
		require.Zero(t, spy.calls.Load(), "calls of the owner that was frozen")
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

// A spy counts calls that concern leases of partitions.
type spy struct {
	backend.Backend
	calls atomic.Int64
}

func (s *spy) Unwrap() backend.Backend { return s.Backend }

func (s *spy) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := s.Backend.Attach(ctx, c)
	if err != nil || !strings.Contains(c.Topic, ".partition-") {
		return src, err
	}
	return &spiedSource{src, s}, nil
}

type spiedSource struct {
	backend.Source
	s *spy
}

func (s *spiedSource) Receive(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
	s.s.calls.Add(1)
	return s.Source.Receive(ctx, limit, bytes)
}

func (s *spiedSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	s.s.calls.Add(1)
	return s.Source.Ack(ctx, ds)
}

func (s *spiedSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	s.s.calls.Add(1)
	return s.Source.(backend.Delayer).Delay(ctx, ds)
}

func (s *spiedSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	s.s.calls.Add(1)
	return s.Source.(backend.Extender).Extend(ctx, ds)
}

// A partition that moves to a new member in peace is without work for at most a second, and its
// event that waits for a retry does not let later events of its key pass.
func TestPartitionMovesInPeace(t *testing.T) {
	inPartitions(t, 2, func(t *testing.T, _ *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		var mu sync.Mutex
		last, gap := map[string]time.Time{}, time.Duration(0)
		order := map[string][]string{}
		by := map[string]int{}
		member := func(name string) *eventbus.Subscription {
			bus, _ := open()
			s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Initial: time.Hour, Jitter: -1}}, func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				by[name]++
				if d.ID == "bad" && d.Attempt == 1 {
					return errors.New("later")
				}
				order[d.Key] = append(order[d.Key], d.ID)
				if at := last[d.Key]; !at.IsZero() && d.Key != "stuck" {
					gap = max(gap, time.Since(at))
				}
				last[d.Key] = time.Now()
				return nil
			})
			require.NoError(t, err)
			return s
		}
		one := member("one")
		time.Sleep(2 * time.Second)
		bus, _ := open()
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "stuck"}, &eventbus.Event{ID: "good", Key: "stuck"}))
		tick := func(n int) {
			for range n {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: "a"}, &eventbus.Event{Key: "b"}, &eventbus.Event{Key: "c"}))
				time.Sleep(10 * time.Millisecond)
			}
		}
		tick(100)
		two := member("two")
		tick(500)
		require.Len(t, one.Partitions(), 1)
		require.Len(t, two.Partitions(), 1)
		require.NoError(t, one.Drain(t.Context()))
		tick(200)
		require.Equal(t, []int{0, 1}, two.Partitions())
		mu.Lock()
		defer mu.Unlock()
		require.LessOrEqual(t, gap, time.Second, "time without work")
		require.Equal(t, []string{"bad", "good"}, order["stuck"], "a move makes the retry early")
		require.Positive(t, by["two"])
		require.Len(t, order["a"], 800)
	})
}

// The counts of a group are sums over its partitions, and positions are of the partition.
func TestPartitionFigures(t *testing.T) {
	inPartitions(t, 4, func(t *testing.T, b *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		bus, _ := open()
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(ctx context.Context, _ *eventbus.Delivery) error {
			<-ctx.Done()
			return errors.New("ended")
		})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"orders"}, s.Topics())
		var events []*eventbus.Event
		for range 40 {
			events = append(events, &eventbus.Event{})
		}
		receipts, err := bus.PublishReceipts(t.Context(), "orders", events...)
		require.NoError(t, err)
		positions := map[string]int{}
		for _, r := range receipts {
			positions[r.Position]++
		}
		for position, n := range positions {
			require.Equal(t, 4, n, "position %s is in each partition", position)
		}
		n, err := s.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 40, n.Lag+n.InFlight)
		require.EqualValues(t, 1, n.Members)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.Drain(ctx))
	})
}

// Scheduled events, events with Once, and dead letters find their partitions.
func TestPartitionsOfOtherPublishers(t *testing.T) {
	inPartitions(t, 8, func(t *testing.T, b *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		bus, _ := open()
		var mu sync.Mutex
		got := map[string]int{}
		var last *eventbus.Delivery
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			got[d.ID]++
			last = d
			if d.ID == "bad" && got["bad"] == 1 {
				return eventbus.Permanent(errors.New("no"))
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Minute, &eventbus.Event{ID: "later", Key: "k"}))
		count := func(id string) int {
			mu.Lock()
			defer mu.Unlock()
			return got[id]
		}
		time.Sleep(59 * time.Second)
		require.Zero(t, count("later"))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, count("later"))
		mu.Lock()
		require.Equal(t, eventbus.PartitionOf("k", 8), last.Partition)
		mu.Unlock()

		for range 9 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "once", Once: "once"}))
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, count("once"), "a repeated Publish finds the first event")

		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "k"}))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, s.Counts().DeadLettered)
		dead, err := deadletter.Open(b, "orders.dlq")
		require.NoError(t, err)
		report, err := dead.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.EqualValues(t, 1, report.Redriven)
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, count("bad"))
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, eventbus.PartitionOf("k", 8), last.Partition)
	})
}

// With EachInstance every instance reads all partitions. With one partition the order is total in
// the whole group.
func TestPartitionsOfEachInstance(t *testing.T) {
	inPartitions(t, 4, func(t *testing.T, _ *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		var counts [2]atomic.Int64
		var bus *eventbus.Bus
		for i := range counts {
			bus, _ = open()
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Topic == "orders" && d.Partition == eventbus.PartitionOf(d.Key, 4) && d.Epoch == 0 {
					counts[i].Add(1)
				}
				return nil
			})
			require.NoError(t, err)
		}
		for i := range 50 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: fmt.Sprint(i)}))
		}
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 50, counts[0].Load())
		require.EqualValues(t, 50, counts[1].Load())
	})
}

func TestTotalOrderOfTwoMembers(t *testing.T) {
	inPartitions(t, 1, func(t *testing.T, _ *inmemory.Backend, open func() (*eventbus.Bus, *process.Process)) {
		var mu sync.Mutex
		var got []string
		var subs []*eventbus.Subscription
		var bus *eventbus.Bus
		for range 2 {
			bus, _ = open()
			s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Order: eventbus.OrderTotal, Retry: eventbus.Retry{Initial: 100 * time.Millisecond}}, func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if d.Attempt == 1 && d.ID[2] == '7' {
					return errors.New("later")
				}
				got = append(got, d.ID)
				return nil
			})
			require.NoError(t, err)
			subs = append(subs, s)
		}
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("%03d", i))
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: want[i]}))
			time.Sleep(50 * time.Millisecond)
			if i == 50 {
				owner := slices.IndexFunc(subs, func(s *eventbus.Subscription) bool { return len(s.Partitions()) == 1 })
				go func() { _ = subs[owner].Drain(context.WithoutCancel(t.Context())) }()
			}
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, want, got)
	})
}

// A driver that panics harms no process: the partitions are lost, and taken again.
func TestPartitionsOfADriverThatPanics(t *testing.T) {
	inPartitions(t, 2, func(t *testing.T, b *inmemory.Backend, _ func() (*eventbus.Bus, *process.Process)) {
		mad := &mad{Backend: b}
		bus, err := eventbus.New(&process.Process{Backend: mad}, eventbus.Options{
			Observer: observer.Observer{Failed: func(observer.Failed) {}},
			Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: 2}},
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Lease: 4 * time.Second}, succeed)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Len(t, s.Partitions(), 2)
		mad.panics.Store(true)
		time.Sleep(5 * time.Second)
		require.Empty(t, s.Partitions())
		state, err := s.State()
		require.Equal(t, observer.Degraded, state, err)
		mad.panics.Store(false)
		time.Sleep(6 * time.Second)
		require.Len(t, s.Partitions(), 2)
		state, err = s.State()
		require.Equal(t, observer.Running, state, err)
	})
}

// mad panics in each call by a member and whenever a topic is read.
type mad struct {
	backend.Backend
	panics atomic.Bool
}

func (m *mad) Unwrap() backend.Backend { return m.Backend }

func (m *mad) call() {
	if m.panics.Load() {
		panic("mad")
	}
}

func (m *mad) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	m.call()
	return backend.Read(ctx, m.Backend, topic, from, limit)
}

func (m *mad) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := m.Backend.Attach(ctx, c)
	return &madSource{src, m}, err
}

type madSource struct {
	backend.Source
	m *mad
}

func (s *madSource) Receive(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
	s.m.call()
	return s.Source.Receive(ctx, limit, bytes)
}

func (s *madSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	s.m.call()
	return s.Source.(backend.Delayer).Delay(ctx, ds)
}

func (s *madSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	s.m.call()
	return s.Source.(backend.Extender).Extend(ctx, ds)
}

// Members with partitions report events that a program without partitions has published, once,
// and again after an hour.
func TestEventsOutsidePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		var mu sync.Mutex
		var told []string
		bus, err := eventbus.New(lent{mem}, eventbus.Options{
			Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 2}},
			Observer: observer.Observer{Noticed: func(n observer.Noticed) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, n.Topic+"/"+n.Group+": "+n.Text)
			}},
		})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, succeed)
		require.NoError(t, err)
		tells := func(after time.Duration, n int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, told, n)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Key: "ada"}))
		tells(time.Minute, 0)

		plain, err := eventbus.New(lent{mem}, eventbus.Options{})
		require.NoError(t, err)
		require.NoError(t, plain.Publish(t.Context(), "orders", &eventbus.Event{Key: "ada"}))
		tells(11*time.Second, 1)
		require.Contains(t, told[0], "orders/billing: the topic has events outside its partitions")
		tells(50*time.Minute, 1)
		tells(11*time.Minute, 2)
		require.NoError(t, plain.Shutdown(t.Context()))
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

// BenchmarkPartitions consumes a backlog of b.N events of 1,000 keys, in a topic without partitions and in
// topics with some. Run it with -benchtime 1000000x.
func BenchmarkPartitions(b *testing.B) {
	for _, n := range []int{0, 1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			memory := inmemory.New(inmemory.Options{MaxMessages: b.N + 100, MaxBytes: 8 << 30})
			bus, err := eventbus.New(memory, eventbus.Options{
				Observer: observer.Slog(slog.New(slog.DiscardHandler)),
				Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: n}},
			})
			require.NoError(b, err)
			backlog(b, bus, b.N)
			var handled atomic.Int64
			done := make(chan struct{})
			b.ResetTimer()
			_, err = bus.Subscribe(b.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Start: eventbus.StartEarliest}, func(context.Context, *eventbus.Delivery) error {
				if handled.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			})
			require.NoError(b, err)
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			require.NoError(b, bus.Shutdown(b.Context()))
			require.NoError(b, memory.Close())
		})
	}
}

// backlog publishes n events to the topic orders.
func backlog(b *testing.B, bus *eventbus.Bus, n int) {
	payload := make([]byte, 100)
	for published := 0; published < n; {
		batch := make([]*eventbus.Event, min(500, n-published))
		for i := range batch {
			batch[i] = &eventbus.Event{Key: fmt.Sprint("key-", (published+i)%1000), Type: "order", Payload: payload}
		}
		require.NoError(b, bus.Publish(b.Context(), "orders", batch...))
		published += len(batch)
	}
}
