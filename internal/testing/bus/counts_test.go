package bus_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

// runOf is a handler whose run ends as the ID of its event says, once. The next run succeeds.
func runOf(ctx context.Context, d *eventbus.Delivery) error {
	if d.Attempt > 1 || d.Redelivered {
		return nil
	}
	switch d.ID {
	case "error":
		return errors.New("broken")
	case "panic":
		panic("boom")
	case "goexit":
		runtime.Goexit()
	case "panic with the timeout":
		<-ctx.Done()
		panic(context.Cause(ctx))
	case "late":
		<-ctx.Done()
		return errors.New("broken")
	case "late panic":
		<-ctx.Done()
		panic("boom")
	case "late success":
		<-ctx.Done()
		return nil
	case "stuck":
		time.Sleep(10 * time.Minute)
		panic("boom")
	case "snooze":
		return eventbus.Snooze(time.Second)
	case "snooze without a run":
		return errors.Join(eventbus.Snooze(time.Second), &observer.NotRunError{Err: errors.New("too busy")})
	case "drop":
		return eventbus.Drop("not wanted")
	}
	return nil
}

// A run is counted once, by its first result: as a failure, and of these as a panic or a
// timeout, or as a snooze.
func TestCountsTellRunsApart(t *testing.T) {
	type counts struct{ Failures, Panics, Timeouts, Snoozes int64 }
	for id, want := range map[string]counts{
		"success":                {},
		"error":                  {Failures: 1},
		"panic":                  {Failures: 1, Panics: 1},
		"goexit":                 {Failures: 1, Panics: 1},
		"late":                   {Failures: 1, Timeouts: 1},
		"late panic":             {Failures: 1, Timeouts: 1},
		"panic with the timeout": {Failures: 1, Timeouts: 1},
		"late success":           {},
		"stuck":                  {Failures: 1, Timeouts: 1},
		"snooze":                 {Snoozes: 1},
		"snooze without a run":   {},
		"drop":                   {},
	} {
		t.Run(id, func(t *testing.T) {
			on(t, func(t *testing.T, bus *eventbustest.Bus) {
				s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Minute}, runOf)
				require.NoError(t, err)
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
				time.Sleep(time.Hour)
				c := s.Counts()
				require.Equal(t, want, counts{c.Failures, c.Panics, c.Timeouts, c.Snoozes})
				require.Equal(t, c.Failures, c.Retried)
			})
		})
	}
}

// Counts tell the runs of manual and of batch handlers apart too.
func TestCountsOfOtherHandlers(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		manual, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "manual", Timeout: time.Minute, Concurrency: 8}, func(ctx context.Context, d *eventbus.ManualDelivery) error {
			switch {
			case d.Attempt > 1 || d.Redelivered:
				return d.Ack(ctx)
			case d.ID == "snooze":
				return d.Nack(ctx, eventbus.Snooze(time.Second))
			case d.ID == "panic":
				panic("boom")
			case d.ID == "late":
				return nil // and the program forgets it
			}
			return d.Nack(ctx, nil)
		})
		require.NoError(t, err)
		batch, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "batch", Timeout: time.Minute}, eventbus.Batch{MaxSize: 1}, func(ctx context.Context, ds []*eventbus.Delivery) []error {
			return []error{runOf(ctx, ds[0])}
		})
		require.NoError(t, err)
		for _, id := range []string{"error", "panic", "snooze", "late"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
		}
		time.Sleep(time.Hour)
		for _, s := range []*eventbus.Subscription{manual, batch} {
			c := s.Counts()
			require.Equal(t, []int64{3, 1, 1, 1, 4}, []int64{c.Failures, c.Panics, c.Timeouts, c.Snoozes, c.Acknowledged}, s.Group())
		}
	})
}
