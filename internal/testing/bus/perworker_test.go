package bus_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// A crew makes handlers that have a number, and reports calls of one handler that overlap.
type crew struct {
	t      *testing.T
	made   int // without a lock, because calls of fresh do not overlap
	making atomic.Int64

	mu   sync.Mutex
	runs map[int]int // by the number of the handler
}

func newCrew(t *testing.T) *crew { return &crew{t: t, runs: map[int]int{}} }

// fresh returns a function that makes handlers. Each calls work with its number.
func (c *crew) fresh(work func(n int, d *eventbus.Delivery) error) func() eventbus.Handler {
	return func() eventbus.Handler {
		begin := c.worker()
		return func(_ context.Context, d *eventbus.Delivery) error {
			n, end := begin()
			defer end()
			return work(n, d)
		}
	}
}

// worker makes a further handler. Each call of it calls begin, and end when it returns.
func (c *crew) worker() (begin func() (n int, end func())) {
	if c.making.Add(1) > 1 {
		c.t.Error("two calls of fresh overlap")
	}
	runtime.Gosched()
	c.made++
	n, busy := c.made, false
	c.making.Add(-1)
	return func() (int, func()) {
		if busy {
			c.t.Errorf("handler %d has two calls at the same time", n)
		}
		busy = true
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[n]++
		return n, func() { busy = false }
	}
}

// total returns how many calls there were.
func (c *crew) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, runs := range c.runs {
		n += runs
	}
	return n
}

// Runs at the same time have handlers of their own, retries and types included, and there are as
// many handlers as runs at the same time.
func TestPerWorker(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		c := newCrew(t)
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 8}, eventbus.PerWorker(c.fresh(func(_ int, d *eventbus.Delivery) error {
			time.Sleep(time.Second)
			if d.Attempt == 1 && d.ID[len(d.ID)-1] == '3' {
				return errors.New("bad")
			}
			return nil
		})))
		require.NoError(t, err)
		require.Equal(t, 1, c.made, "one is made at once")
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(200)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 8, c.made)
		require.Equal(t, 220, c.total())
	})
}

// More handlers after SetConcurrency are fresh ones. Fewer ones wait, and are used again.
func TestPerWorkerFollowsConcurrency(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		c := newCrew(t)
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 1, MaxConcurrency: 6}, eventbus.PerWorker(c.fresh(func(int, *eventbus.Delivery) error {
			time.Sleep(time.Second)
			return nil
		})))
		require.NoError(t, err)
		for _, step := range []struct{ handlers, made int }{{1, 1}, {4, 4}, {2, 4}, {6, 6}, {1, 6}, {6, 6}} {
			require.NoError(t, s.SetConcurrency(step.handlers))
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, step.made, c.made, "with %d handlers", step.handlers)
		}
	})
}

// The handler of a run that is stuck stays with it. Other runs get another one, until it returns.
func TestPerWorkerOfAStuckRun(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		c := newCrew(t)
		release := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Second}, eventbus.PerWorker(c.fresh(func(_ int, d *eventbus.Delivery) error {
			if d.ID == "stuck" && d.Attempt == 1 {
				<-release
			}
			return nil
		})))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "stuck"}))
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(20)...))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 2, c.made)
		require.Equal(t, map[int]int{1: 1, 2: 21}, c.runs)
		close(release)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(20)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 2, c.made)
	})
}

// A handler that panics or ends its goroutine is not called again. If no fresh one can be made, the
// run has failed with a panic.
func TestPerWorkerAfterPanics(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		c := newCrew(t)
		fresh, broken := c.fresh(func(_ int, d *eventbus.Delivery) error {
			switch {
			case d.Attempt == 1 && d.ID == "panic":
				panic("boom")
			case d.Attempt == 1 && d.ID == "exit":
				runtime.Goexit()
			}
			return nil
		}), 0
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.PerWorker(func() eventbus.Handler {
			switch broken--; broken {
			case 1:
				panic("no handler")
			case 0:
				return nil
			}
			return fresh()
		}))
		require.NoError(t, err)
		handle := func(id string) {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
			require.NoError(t, bus.WaitIdle(t.Context()))
		}
		handle("panic")
		require.Equal(t, 2, c.made)
		handle("exit")
		require.Equal(t, 3, c.made)
		require.EqualValues(t, 2, s.Counts().Panics)
		broken = 2
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "panic"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 4, c.made)
		require.EqualValues(t, 5, s.Counts().Panics, "the handler, then fresh twice")
		require.Equal(t, map[int]int{1: 1, 2: 2, 3: 2, 4: 1}, c.runs)
	})
}

// Manual and batch handlers have the same promise, and so have handlers by type, inside and outside.
func TestPerWorkerOfEachKind(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		manual, batch, inside, outside := newCrew(t), newCrew(t), newCrew(t), newCrew(t)
		o := eventbus.SubscribeOptions{Group: "manual", Concurrency: 3}
		_, err := bus.SubscribeManual(t.Context(), "orders", o, eventbus.PerWorker(func() eventbus.ManualHandler {
			begin := manual.worker()
			return func(ctx context.Context, d *eventbus.ManualDelivery) error {
				_, end := begin()
				defer end()
				time.Sleep(time.Second)
				go d.Ack(ctx)
				return nil
			}
		}))
		require.NoError(t, err)
		o.Group = "batch"
		_, err = bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{MaxSize: 4}, eventbus.PerWorker(func() eventbus.BatchHandler {
			begin := batch.worker()
			return func(context.Context, []*eventbus.Delivery) []error {
				_, end := begin()
				defer end()
				time.Sleep(time.Second)
				return nil
			}
		}))
		require.NoError(t, err)
		wait := func(int, *eventbus.Delivery) error {
			time.Sleep(time.Second)
			return nil
		}
		o.Group = "inside"
		_, err = bus.Subscribe(t.Context(), "orders", o, eventbus.ByType(map[string]eventbus.Handler{"a": eventbus.PerWorker(inside.fresh(wait))}, eventbus.DiscardUnknown))
		require.NoError(t, err)
		o.Group = "outside"
		_, err = bus.Subscribe(t.Context(), "orders", o, eventbus.PerWorker(func() eventbus.Handler {
			return eventbus.ByType(map[string]eventbus.Handler{"a": outside.fresh(wait)()}, nil)
		}))
		require.NoError(t, err)
		es := numbered(60)
		for _, e := range es {
			e.Type = "a"
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", es...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		for name, c := range map[string]*crew{"manual": manual, "batch": batch, "inside": inside, "outside": outside} {
			require.Equal(t, 3, c.made, name)
		}
		require.Equal(t, []int{60, 15, 60, 60}, []int{manual.total(), batch.total(), inside.total(), outside.total()})
	})
}

// A middleware that calls the handler twice at the same time gets two handlers.
func TestPerWorkerBelowAMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Middleware: []eventbus.Middleware{func(next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				second := make(chan error)
				go func() { second <- next(ctx, d) }()
				return errors.Join(next(ctx, d), <-second)
			}
		}}})
		c := newCrew(t)
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.PerWorker(c.fresh(func(int, *eventbus.Delivery) error {
			time.Sleep(time.Second)
			return nil
		})))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(10)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 2, c.made)
		require.Equal(t, 20, c.total())
	})
}

// A function that makes no handler is an error of the program, at once.
func TestPerWorkerWithoutAHandler(t *testing.T) {
	require.PanicsWithValue(t, "eventbus: PerWorker: fresh returned nil", func() {
		eventbus.PerWorker(func() eventbus.Handler { return nil })
	})
	require.PanicsWithValue(t, "no license", func() {
		eventbus.PerWorker(func() eventbus.BatchHandler { panic("no license") })
	})
}
