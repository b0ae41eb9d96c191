package results_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/results"
	"github.com/seed41896749/eventbus/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

// counted is a store that counts calls and may fail.
type counted struct {
	store.Store

	mu       sync.Mutex
	sets     int
	failures int // how many of the next calls of Set fail
}

func (c *counted) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets++; c.failures > 0 {
		c.failures--
		return errBroken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Store.Set(ctx, key, value, ttl)
}

func newCounted() *counted { return &counted{Store: store.NewMemory(store.MemoryOptions{})} }

func with(t *testing.T, ms ...eventbus.Middleware) *eventbustest.Bus {
	t.Helper()
	return eventbustest.NewWith(t, eventbus.Options{Middleware: ms})
}

var options = eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 3, Jitter: -1}}

// handle publishes one event with the ID 1 to h, and returns when it is settled.
func handle(t *testing.T, bus *eventbustest.Bus, h eventbus.Handler) *eventbus.Subscription {
	t.Helper()
	s, err := bus.Subscribe(t.Context(), "orders", options, h)
	require.NoError(t, err)
	publish(t, bus, "1")
	return s
}

func publish(t *testing.T, bus *eventbustest.Bus, id string) {
	t.Helper()
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
	require.NoError(t, bus.WaitIdle(t.Context()))
}

// result returns the result of the event id, or "none".
func result(t *testing.T, s store.Store, id string) string {
	t.Helper()
	data, ok, err := results.Get(t.Context(), s, "orders", "g", id)
	require.NoError(t, err)
	if !ok {
		return "none"
	}
	return string(data)
}

// Wait returns the result soon after the event was handled. It is kept for TTL.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, results.Middleware(s, results.Options{}))
		_, err := bus.Subscribe(t.Context(), "orders", options, func(ctx context.Context, d *eventbus.Delivery) error {
			time.Sleep(3 * time.Second)
			data := []byte("paid " + d.ID)
			d.Topic, d.Group, d.ID = "changed", "by the", "handler"
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			defer copy(data, "overwritten")
			return results.Set(child, data)
		})
		require.NoError(t, err)
		receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{})
		require.NoError(t, err)
		start := time.Now()
		data, err := results.Wait(t.Context(), s, "orders", "g", receipts[0].ID)
		require.NoError(t, err)
		require.Equal(t, "paid "+receipts[0].ID, string(data))
		require.Less(t, time.Since(start), 3*time.Second+300*time.Millisecond)
		require.NoError(t, bus.WaitIdle(t.Context()))

		time.Sleep(24*time.Hour - time.Minute)
		require.NotEqual(t, "none", result(t, s, receipts[0].ID))
		time.Sleep(time.Minute)
		require.Equal(t, "none", result(t, s, receipts[0].ID))
	})
}

// A short handler is not waited for longer than a fast poll takes.
func TestWaitLooksSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		time.AfterFunc(15*time.Millisecond, func() { _ = s.Set(t.Context(), "result/orders/g/1", []byte("x"), time.Hour) })
		start := time.Now()
		_, err := results.Wait(t.Context(), s, "orders", "g", "1")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 25*time.Millisecond)
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errBroken)
		defer cancel()
		start := time.Now()
		_, err := results.Wait(ctx, newCounted(), "orders", "g", "1")
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, time.Minute, time.Since(start))

		_, err = results.Wait(t.Context(), deaf{}, "orders", "g", "1")
		require.EqualError(t, err, "results: get: broken")
	})
}

// deaf is a store whose Get fails.
type deaf struct{ store.Store }

func (deaf) Get(context.Context, string) ([]byte, bool, error) { return nil, false, errBroken }

// Only a successful run has a result, and the last one stays.
func TestTheLastSuccessfulRunWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, results.Middleware(s, results.Options{}))
		seen := map[string]string{}
		succeed := false
		handle(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			seen[fmt.Sprint(d.ID, d.Attempt)] = result(t, s, d.ID)
			require.NoError(t, results.Set(ctx, fmt.Appendf(nil, "early %d", d.Attempt)))
			require.NoError(t, results.Set(ctx, fmt.Appendf(nil, "attempt %d, %t", d.Attempt, succeed)))
			switch {
			case succeed:
				return nil
			case d.Attempt == 1:
				return errBroken
			case d.Attempt == 2:
				panic("boom")
			}
			return nil
		})
		require.Equal(t, "attempt 3, false", result(t, s, "1"))
		require.Equal(t, map[string]string{"11": "none", "12": "none", "13": "none"}, seen)
		succeed = true
		publish(t, bus, "1") // as if it was redelivered
		require.Equal(t, "attempt 1, true", result(t, s, "1"))
	})
}

// A failed event has no result.
func TestAFailedEventHasNoResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, results.Middleware(s, results.Options{}))
		handle(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error {
			return errors.Join(results.Set(ctx, []byte("no")), errBroken)
		})
		require.Len(t, bus.Published("orders.dlq"), 1)
		require.Equal(t, "none", result(t, s, "1"))
		require.Zero(t, s.sets)
	})
}

// An event whose result cannot be stored is retried. Once it is acknowledged, it has its result.
func TestAnAcknowledgedEventHasItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		s.failures = 2
		bus := with(t, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{}),
			results.Middleware(s, results.Options{}))
		runs := 0
		sub := handle(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error {
			runs++
			return results.Set(ctx, []byte("yes"))
		})
		require.Equal(t, 3, runs)
		require.EqualValues(t, 2, sub.Counts().Failures)
		require.Equal(t, "yes", result(t, s, "1"))

		s.failures = 3
		publish(t, bus, "2")
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, `results: store "result/orders/g/2": broken`, dead[0].Headers.Get("eventbus-dead-error"))
		publish(t, bus, "1") // Dedupe discards it
		require.Equal(t, 6, runs)
		require.Equal(t, "yes", result(t, s, "1"))
	})
}

// A store that does not answer holds a handler for Timeout. The end of the run's context ends
// no store of a result.
func TestStoringIsBoundedByItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, middleware.Timeout(map[string]time.Duration{"": time.Second}), results.Middleware(s, results.Options{}))
		handle(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error {
			<-ctx.Done()
			return results.Set(ctx, []byte("late"))
		})
		require.Equal(t, "late", result(t, s, "1"))
	})
	synctest.Test(t, func(t *testing.T) {
		h := results.Middleware(silent{}, results.Options{Timeout: 7 * time.Second})(func(ctx context.Context, _ *eventbus.Delivery) error {
			return results.Set(ctx, []byte("x"))
		})
		start := time.Now()
		require.ErrorIs(t, h(t.Context(), &eventbus.Delivery{}), context.DeadlineExceeded)
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

// silent is a store whose Set ends with its context only.
type silent struct{ store.Store }

func (silent) Set(ctx context.Context, _ string, _ []byte, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// Without a result there is no call of the store.
func TestNoResultNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, results.Middleware(s, results.Options{}))
		handle(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			if d.ID == "1" {
				return nil
			}
			return errors.Join(results.Set(ctx, []byte("taken back")), results.Set(ctx, []byte{}))
		})
		publish(t, bus, "2")
		require.Zero(t, s.sets)
	})
}

// Set says why it sets nothing.
func TestSetWithoutARun(t *testing.T) {
	require.ErrorIs(t, results.Set(t.Context(), []byte("x")), results.ErrNoRun)
	var kept context.Context
	s := newCounted()
	h := results.Middleware(s, results.Options{MaxSize: 3})(func(ctx context.Context, _ *eventbus.Delivery) error {
		kept = ctx
		require.NoError(t, results.Set(ctx, []byte("abc")))
		err := results.Set(ctx, []byte("abcd"))
		require.ErrorIs(t, err, eventbus.ErrTooLarge)
		require.EqualError(t, err, "results: set: "+eventbus.ErrTooLarge.Error()+": the result has 4 bytes, more than 3")
		return nil
	})
	require.NoError(t, h(t.Context(), &eventbus.Delivery{Topic: "orders", Group: "g", Event: eventbus.Event{ID: "1"}}))
	require.Equal(t, "abc", result(t, s, "1"))
	require.ErrorIs(t, results.Set(kept, []byte("x")), results.ErrNoRun, "the run has ended")
}

// A subscription that a handler makes has the values of the handler's context, but not its
// result. Of two middlewares the inner one gets the result.
func TestNestedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := newCounted(), newCounted()
		bus := with(t, results.Middleware(outer, results.Options{}), results.Middleware(inner, results.Options{}))
		_, err := bus.Subscribe(t.Context(), "first", options, func(ctx context.Context, _ *eventbus.Delivery) error {
			_, err := bus.Subscribe(ctx, "orders", options, func(ctx context.Context, _ *eventbus.Delivery) error {
				return results.Set(ctx, []byte("inner"))
			})
			require.NoError(t, err)
			return results.Set(ctx, []byte("outer"))
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "first", &eventbus.Event{ID: "0"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		publish(t, bus, "1")
		require.Equal(t, "inner", result(t, inner, "1"))
		require.Equal(t, 2, inner.sets)
		require.Zero(t, outer.sets)
	})
}

// Each event of a batch has its own result, whatever other middleware does.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		copies := func(next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				c := *d
				return next(ctx, &c)
			}
		}
		bus := with(t, results.Middleware(s, results.Options{}), copies, middleware.Timeout(map[string]time.Duration{"": time.Hour}))
		_, err := bus.SubscribeBatch(t.Context(), "orders", options, eventbus.Batch{}, func(ctx context.Context, ds []*eventbus.Delivery) []error {
			require.ErrorIs(t, results.Set(ctx, nil), results.ErrNoRun)
			errs := make([]error, len(ds))
			for i, d := range ds {
				errs[i] = results.Set(d.Context(), fmt.Appendf(nil, "%s, attempt %d", d.ID, d.Attempt))
				if d.Attempt == 1 && d.ID == "2" {
					errs[i] = errBroken
				}
			}
			return errs
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}, &eventbus.Event{ID: "2"}, &eventbus.Event{ID: "3"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		for id, want := range map[string]string{"1": "1, attempt 1", "2": "2, attempt 2", "3": "3, attempt 1"} {
			require.Equal(t, want, result(t, s, id))
		}
		require.Equal(t, 3, s.sets)
	})
}

// For a ManualHandler Set stores at once, so the result is there before Ack.
func TestManualHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		s.failures = 1
		bus := with(t, results.Middleware(s, results.Options{}))
		var errs []error
		_, err := bus.SubscribeManual(t.Context(), "orders", options, func(ctx context.Context, d *eventbus.ManualDelivery) error {
			go func() {
				time.Sleep(time.Second) // the handler has returned
				require.Equal(t, "none", result(t, s, d.ID))
				err := errors.Join(results.Set(ctx, nil), results.Set(ctx, fmt.Append(nil, d.Attempt)))
				errs = append(errs, err)
				if err != nil {
					_ = d.Nack(ctx, err)
					return
				}
				require.Equal(t, fmt.Sprint(d.Attempt), result(t, s, d.ID))
				_ = d.Ack(ctx)
			}()
			return nil
		})
		require.NoError(t, err)
		publish(t, bus, "1")
		require.Len(t, errs, 2)
		require.ErrorIs(t, errs[0], errBroken)
		require.NoError(t, errs[1])
		require.Equal(t, "2", result(t, s, "1"))
	})
}

// With AckOnReceive the result is stored too. If it cannot be, the event is discarded.
func TestAckOnReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		bus := with(t, results.Middleware(s, results.Options{}))
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive},
			func(ctx context.Context, d *eventbus.Delivery) error { return results.Set(ctx, []byte(d.ID)) })
		require.NoError(t, err)
		publish(t, bus, "1")
		synctest.Wait() // the acknowledgement came before the run
		require.Equal(t, "1", result(t, s, "1"))
		s.failures = 1
		publish(t, bus, "2")
		synctest.Wait()
		require.Equal(t, "none", result(t, s, "2"))
		require.EqualValues(t, 1, sub.Counts().Discarded)
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	require.PanicsWithValue(t, "results: Middleware: the store is nil", func() { results.Middleware(nil, results.Options{}) })
	for _, o := range []results.Options{{TTL: -1}, {MaxSize: -1}, {Timeout: -1}} {
		require.Panics(t, func() { results.Middleware(newCounted(), o) })
	}
}
