package middleware_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestThrottleLimitsEachBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(2, middleware.ThrottleOptions{
			Burst: 3, Bucket: func(d *eventbus.Delivery) string { return d.Type },
		}))
		start := time.Now()
		var mu sync.Mutex
		began := map[string][]time.Duration{}
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 50},
			func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				began[d.Type] = append(began[d.Type], time.Since(start).Round(time.Millisecond))
				return nil
			})
		require.NoError(t, err)
		for range 6 {
			for _, tenant := range []string{"blue", "red", ""} {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: tenant}))
			}
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		const half = time.Second / 2
		want := []time.Duration{0, 0, 0, half, 2 * half, 3 * half}
		require.Equal(t, map[string][]time.Duration{"blue": want, "red": want, "": {0, 0, 0, 0, 0, 0}}, began)
		require.EqualValues(t, 18, s.Counts().Received, "waiting costs no redelivery")
	})
}

func TestThrottleSnoozesBeyondTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(0.01, middleware.ThrottleOptions{}))
		start := time.Now()
		var attempts []int
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			attempts = append(attempts, d.Attempt)
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []int{1, 1}, attempts)
		require.GreaterOrEqual(t, time.Since(start), 100*time.Second)
		require.EqualValues(t, 3, s.Counts().Received)
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

func TestThrottleEndsWithTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(0.1, middleware.ThrottleOptions{}))
		runs := 0
		s := subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { runs++; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_ = s.Drain(ctx)
		require.Less(t, time.Since(start), 3*time.Second)
		require.Equal(t, 1, runs)
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

func TestThrottleForgetsTheBucketUnusedForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware.Throttle(1, middleware.ThrottleOptions{
			MaxBuckets: 2, Bucket: func(d *eventbus.Delivery) string { return d.Type },
		})(func(context.Context, *eventbus.Delivery) error { return nil })
		wait := func(bucket string) time.Duration {
			start := time.Now()
			require.NoError(t, h(t.Context(), &eventbus.Delivery{Event: eventbus.Event{Type: bucket}}))
			return time.Since(start).Round(time.Millisecond)
		}
		require.Zero(t, wait("a"))
		require.Zero(t, wait("b"))
		require.Equal(t, time.Second, wait("a"), "a is remembered, and was used last")
		require.Zero(t, wait("c"), "b is forgotten for c")
		require.Equal(t, time.Second, wait("a"))
		require.Zero(t, wait("b"), "forgotten")
	})
}

// Many events that snooze at the same time take no turns from the events that run later.
func TestThrottleSnoozesTakeNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(10, middleware.ThrottleOptions{}))
		var runs atomic.Int64
		o := eventbus.SubscribeOptions{Group: "g", Concurrency: 64, Timeout: time.Second}
		_, err := bus.Subscribe(t.Context(), "orders", o, func(context.Context, *eventbus.Delivery) error { runs.Add(1); return nil })
		require.NoError(t, err)
		batch := make([]*eventbus.Event, 0, 500)
		for range 2 {
			batch = batch[:0]
			for range 500 {
				batch = append(batch, &eventbus.Event{})
			}
			require.NoError(t, bus.Publish(t.Context(), "orders", batch...))
		}
		time.Sleep(20 * time.Second)
		require.Greater(t, runs.Load(), int64(180), "10 in a second")
	})
}
