package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// A batchCall is one call of a batch handler.
type batchCall struct {
	began time.Duration // since the start of the test
	ids   []string
}

// A batches has the calls of a batch handler.
type batches struct {
	start time.Time
	mu    sync.Mutex
	calls []batchCall
}

// of returns h with its calls recorded.
func (b *batches) of(h eventbus.BatchHandler) eventbus.BatchHandler {
	b.start = time.Now()
	return func(ctx context.Context, ds []*eventbus.Delivery) []error {
		c := batchCall{began: time.Since(b.start)}
		for _, d := range ds {
			c.ids = append(c.ids, d.ID)
		}
		slices.Sort(c.ids)
		b.mu.Lock()
		b.calls = append(b.calls, c)
		b.mu.Unlock()
		return h(ctx, ds)
	}
}

// sizes returns the number of events of each call.
func (b *batches) sizes() (sizes []int) {
	for _, c := range b.calls {
		sizes = append(sizes, len(c.ids))
	}
	return sizes
}

func allHandled(context.Context, []*eventbus.Delivery) []error { return nil }

// numbered returns n events without keys, whose IDs are numbers.
func numbered(n int) []*eventbus.Event {
	es := make([]*eventbus.Event, n)
	for i := range es {
		es[i] = &eventbus.Event{ID: fmt.Sprintf("%03d", i), Payload: make([]byte, 10)}
	}
	return es
}

// deadID is the ID of the event that a dead letter is a copy of.
func deadID(e eventbus.Event) string { return e.Headers.Get("eventbus-dead-id") }

// on runs a test in a synctest bubble, on a bus in memory.
func on(t *testing.T, test func(t *testing.T, bus *eventbustest.Bus)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, eventbustest.New(t))
	})
}

// A full batch is handled at once, and another one when MaxWait has passed since its first
// event. Batches fill while a call runs.
func TestBatchesFillUpOrWait(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			eventbus.Batch{MaxSize: 4, MaxWait: time.Second}, b.of(func(context.Context, []*eventbus.Delivery) []error {
				time.Sleep(3 * time.Second)
				return nil
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(10)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []int{4, 4, 2}, b.sizes())
		require.Equal(t, []time.Duration{0, 3 * time.Second, 7 * time.Second},
			[]time.Duration{b.calls[0].began, b.calls[1].began, b.calls[2].began})
	})
}

// Defaults and negative values of Batch.
func TestBatchWaits(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: 10 * time.Millisecond, -1: 0, time.Minute: time.Minute} {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			var b batches
			_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxWait: wait}, b.of(allHandled))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			b.start = time.Now()
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, want, b.calls[0].began, "MaxWait %v", wait)
		})
	}
}

// MaxBytes divides batches. An event that is larger has a batch of its own.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxBytes: 35}, b.of(allHandled))
		require.NoError(t, err)
		es := numbered(8) // of 10 bytes
		es[4].Payload = make([]byte, 36)
		require.NoError(t, bus.Publish(t.Context(), "orders", es...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		sizes := b.sizes()
		slices.Sort(sizes)
		require.Len(t, sizes, 4)
		for _, c := range b.calls {
			if slices.Contains(c.ids, "004") {
				require.Equal(t, []string{"004"}, c.ids)
			}
			require.LessOrEqual(t, len(c.ids), 3)
		}
	})
}

// Concurrency is how many calls run at once.
func TestBatchesAtOnce(t *testing.T) {
	for calls := 1; calls <= 3; calls++ {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			var mu sync.Mutex
			now, most := 0, 0
			_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: calls}, eventbus.Batch{MaxSize: 5},
				func(context.Context, []*eventbus.Delivery) []error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					now--
					return nil
				})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", numbered(60)...))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, calls, most, "calls at once")
		})
	}
}

// Each event has its own result: retries, dead letters and discards as for one.
func TestEachEventOfABatchHasItsResult(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Jitter: -1}}, eventbus.Batch{},
			b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs := make([]error, len(ds))
				for i, d := range ds {
					switch {
					case d.ID == "001":
						errs[i] = eventbus.Permanent(errors.New("no such customer"))
					case d.ID == "002" && d.Attempt < 3:
						errs[i] = errors.New("later")
					case d.ID == "003":
						errs[i] = eventbus.Drop("not ours")
					}
				}
				slices.Reverse(ds) // the slice is the handler's
				return errs
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(5)...))
		require.NoError(t, bus.WaitIdle(t.Context()))

		require.Equal(t, []string{"000", "001", "002", "003", "004"}, b.calls[0].ids)
		require.Equal(t, []int{5, 1, 1}, b.sizes(), "only the retry runs again")
		require.Equal(t, b.calls[1].began+2*time.Second+10*time.Millisecond, b.calls[2].began, "its second delay is two seconds")
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "001", deadID(dead[0]))
		c := s.Counts()
		require.EqualValues(t, 1, c.DeadLettered)
		require.EqualValues(t, 1, c.Discarded)
		require.EqualValues(t, 2, c.Retried)
	})
}

// With OrderByKey a batch has one event of each key, and a failed event holds up its key.
func TestBatchesKeepTheOrderOfKeys(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		handled, failed := map[string][]string{}, map[string]bool{}
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxSize: 8},
			func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs, keys := make([]error, len(ds)), map[string]bool{}
				for i, d := range ds {
					require.False(t, keys[d.Key], "a second event of %s in a batch", d.Key)
					keys[d.Key] = true
					if d.Attempt == 1 && len(handled[d.Key])%3 == 1 && !failed[d.ID] {
						failed[d.ID] = true
						errs[i] = errors.New("later")
						continue
					}
					handled[d.Key] = append(handled[d.Key], d.ID)
				}
				return errs
			})
		require.NoError(t, err)
		es := numbered(100)
		want := map[string][]string{}
		for i, e := range es {
			e.Key = fmt.Sprint(i % 7)
			want[e.Key] = append(want[e.Key], e.ID)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", es...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, want, handled)
	})
}

// A drain handles events that wait for a batch at once, and loses none.
func TestDrainDoesNotWaitForABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxWait: time.Hour}, b.of(allHandled))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(7)...))
		time.Sleep(time.Minute)
		require.Empty(t, b.calls)
		start := time.Now()
		require.NoError(t, s.Drain(t.Context()))
		require.Zero(t, time.Since(start))
		require.Equal(t, []int{7}, b.sizes())
		require.EqualValues(t, 7, s.Counts().Acknowledged)
	})
}

// With AckOnReceive each event of a batch is acknowledged before the call.
func TestBatchWithAckOnReceive(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive}, eventbus.Batch{},
			b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
				errs := make([]error, len(ds))
				errs[0] = errors.New("broken")
				return errs
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(6)...))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{6}, b.sizes())
		require.EqualValues(t, 1, s.Counts().Discarded)
		require.EqualValues(t, 6, s.Counts().Acknowledged)
	})
}

// The context of a call has the values of the context given to SubscribeBatch, and ends
// with the call.
func TestContextOfABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		var last context.Context
		_, err := bus.SubscribeBatch(ctx, "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{},
			func(ctx context.Context, _ []*eventbus.Delivery) []error {
				require.Equal(t, "value", ctx.Value(key{}))
				require.NoError(t, ctx.Err())
				last = ctx
				return nil
			})
		require.NoError(t, err)
		cancel()
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.ErrorIs(t, last.Err(), context.Canceled)
	})
}

// Typed batches: an event that cannot be decoded is dead-lettered alone.
func TestTypedBatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		require.Nil(t, invoices.BatchHandler(nil))
		paid, attempts := map[string]int{}, 0
		_, err := bus.SubscribeBatch(t.Context(), invoices.Name, eventbus.SubscribeOptions{Group: "ledger", Order: eventbus.Unordered}, eventbus.Batch{},
			invoices.BatchHandler(func(_ context.Context, vs []invoice, ds []*eventbus.Delivery) []error {
				attempts++
				errs := make([]error, len(vs))
				for i, v := range vs {
					if v.Customer == "ben" && ds[i].Attempt == 1 {
						errs[i] = errors.New("later")
						continue
					}
					paid[v.Customer] += v.Cents
				}
				return errs
			}))
		require.NoError(t, err)
		odd := &eventbus.Event{ID: "odd", Type: invoices.Type, Payload: []byte("?")}
		require.NoError(t, bus.Publish(t.Context(), invoices.Name, odd))
		require.NoError(t, invoices.Publish(t.Context(), bus, invoice{"ada", 1200}, invoice{"ben", 50}, invoice{"ada", 300}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{"ada": 1500, "ben": 50}, paid)
		require.Equal(t, 2, attempts)
		dead := bus.Published("invoices.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "odd", deadID(dead[0]))
	})
}

// Delivery.Context is the context of one event of a batch: with the values of its middleware,
// and with the end of its run.
func TestContextOfAnEventOfABatch(t *testing.T) {
	type key struct{}
	for _, middleware := range [][]eventbus.Middleware{nil, {func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			changed := *d
			return next(context.WithValue(ctx, key{}, "of "+d.ID), &changed)
		}
	}}} {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.NewWith(t, eventbus.Options{Middleware: middleware})
			var kept []context.Context
			ctx := context.WithValue(t.Context(), key{}, "of the subscription")
			_, err := bus.SubscribeBatch(ctx, "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
				for _, d := range ds {
					want := "of " + d.ID
					if middleware == nil {
						want = "of the subscription"
					}
					require.Equal(t, want, d.Context().Value(key{}))
					require.NoError(t, d.Context().Err())
					kept = append(kept, d.Context())
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Len(t, kept, 3)
			for _, ctx := range kept {
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			}
		})
	}
	require.NoError(t, (&eventbus.Delivery{}).Context().Err())
}
