package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestIgnoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.IgnoreErrors(middleware.Is(errBroken, context.Canceled), middleware.As[*eventbus.FieldError]()))
		results := map[string]error{
			"Is": fmt.Errorf("wrapped: %w", errBroken), "permanent": eventbus.Permanent(errBroken),
			"As": fmt.Errorf("wrapped: %w", &eventbus.FieldError{}), "other": eventbus.Permanent(errors.New("other")),
		}
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "panic" {
				panic(errBroken)
			}
			return results[d.ID]
		})
		for _, id := range []string{"success", "Is", "permanent", "As", "other", "panic"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		var dead []string
		for _, e := range bus.Published("orders.dlq") {
			letter, _ := eventbus.DeadLetterOf(&e)
			dead = append(dead, letter.ID)
		}
		require.Equal(t, []string{"other", "panic"}, dead)
		require.EqualValues(t, 1+3, s.Counts().Failures, "one permanent failure, three attempts that panic")
	})
}

// An ignored error settles an event of SubscribeManual too.
func TestIgnoreErrorsOfManualHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.IgnoreErrors(middleware.Is(errBroken)))
		runs := 0
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.ManualDelivery) error {
			runs++
			return errBroken
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 1, runs)
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

// A Shutdown that runs out of time gives back the events that wait for a batch or for
// Throttle, although IgnoreErrors ignores every error.
func TestIgnoreErrorsInADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := middleware.Throttle(0.02, middleware.ThrottleOptions{}) // waits of 50 s, and of 100 s, which is longer than the timeout
		bus := with(t, middleware.IgnoreErrors(func(error) bool { return true }))
		slow := with(t, middleware.IgnoreErrors(func(error) bool { return true }), throttle)
		o := eventbus.SubscribeOptions{Group: "g", Concurrency: 1}
		batch, err := bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{MaxSize: 10, MaxBytes: 1}, func(context.Context, []*eventbus.Delivery) []error {
			time.Sleep(30 * time.Second)
			return nil
		})
		require.NoError(t, err)
		o.Concurrency = 3
		throttled, err := slow.Subscribe(t.Context(), "orders", o, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte("x")}))
			require.NoError(t, slow.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte("x")}))
		}
		time.Sleep(time.Second)
		for _, s := range []*eventbus.Subscription{batch, throttled} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = s.Drain(ctx) // it runs out of time
			require.LessOrEqual(t, s.Counts().Acknowledged, int64(1))
		}
		time.Sleep(time.Minute)
	})
}

// IgnoreErrors ignores no error for an event that no handler has got, and no panic of a batch.
func TestIgnoreErrorsOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.IgnoreErrors(func(error) bool { return true }))
		ran := map[string]int{}
		_, err := bus.SubscribeBatch(t.Context(), "orders",
			eventbus.SubscribeOptions{Group: "g", Timeout: time.Minute, Retry: eventbus.Retry{MaxAttempts: 1}, DeadLetterExpired: true}, eventbus.Batch{MaxSize: 10, MaxBytes: 1},
			func(_ context.Context, ds []*eventbus.Delivery) []error {
				ran[ds[0].ID]++
				if ds[0].ID == "panic" {
					panic(errBroken)
				}
				time.Sleep(59 * time.Second)
				return nil
			})
		require.NoError(t, err)
		for _, id := range []string{"panic", "1", "2", "3", "expires"} {
			e := &eventbus.Event{ID: id, Payload: []byte("x")}
			if id == "expires" {
				e.TTL = 30 * time.Second
			}
			require.NoError(t, bus.Publish(t.Context(), "orders", e))
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{"panic": 1, "1": 1, "2": 1, "3": 1}, ran)
		var dead []string
		for _, e := range bus.Published("orders.dlq") {
			letter, _ := eventbus.DeadLetterOf(&e)
			dead = append(dead, letter.ID+" "+letter.Reason)
		}
		require.ElementsMatch(t, []string{"panic exhausted", "expires expired"}, dead)
	})
}
