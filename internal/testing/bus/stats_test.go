package bus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
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

// The last error of an event that waits for another attempt can be seen, from the first
// failure until the event is acknowledged or dead-lettered.
func TestFailing(t *testing.T) {
	errBank := errors.New("the bank is closed")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var retried []observer.Retried
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
			ErrorClasses: []eventbus.ErrorClass{{Name: "bank", Is: func(err error) bool { return errors.Is(err, errBank) }}},
			Observer:     observer.Observer{Retried: func(e observer.Retried) { mu.Lock(); defer mu.Unlock(); retried = append(retried, e) }},
		})
		require.NoError(t, err)
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "billing", Retry: eventbus.Retry{MaxAttempts: 3, Delay: func(*eventbus.Delivery, error) time.Duration { return time.Minute }},
		}, func(_ context.Context, d *eventbus.Delivery) error {
			switch {
			case d.ID == "snoozed":
				return eventbus.Snooze(time.Hour)
			case d.ID == "heals" && d.Attempt == 2:
				return nil
			case d.Attempt == 2:
				return errors.New(strings.Repeat("x", 1000))
			}
			return fmt.Errorf("charge: %w", errBank)
		})
		require.NoError(t, err)
		start := time.Now()
		for _, id := range []string{"heals", "never", "snoozed"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id, Key: id, Type: "order.placed"}))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		list, total := s.Failing()
		require.Equal(t, 2, total)
		never := list[0]
		require.Equal(t, eventbus.Failing{
			Topic: "orders", ID: "never", Key: "never", Type: "order.placed", Position: never.Position, Attempt: 1, MaxAttempts: 3,
			Due: start.Add(time.Second + time.Minute), Error: "charge: the bank is closed", Class: "bank",
		}, never)
		require.Equal(t, "heals", list[1].ID)
		mu.Lock()
		require.Len(t, retried, 3)
		require.Equal(t, observer.Retried{
			About:   observer.About{Topic: "orders", Group: "billing", ID: "never", Position: never.Position, Type: "order.placed", Attempt: 1},
			Outcome: observer.Retry, MaxAttempts: 3, After: time.Minute, Err: retried[1].Err, Class: "bank",
		}, retried[1])
		require.Equal(t, observer.Snooze, retried[2].Outcome)
		mu.Unlock()

		time.Sleep(time.Minute)
		synctest.Wait()
		list, total = s.Failing()
		require.Equal(t, 1, total, "the other event was acknowledged")
		require.Equal(t, 2, list[0].Attempt)
		require.Equal(t, strings.Repeat("x", 512), list[0].Error)
		time.Sleep(time.Minute)
		synctest.Wait()
		list, total = s.Failing()
		require.Zero(t, total, "the event is a dead letter")
		require.Empty(t, list)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// Of many failing events the newest are listed, and all are counted. An event that another
// member must have by now is listed no longer.
func TestFailingIsBounded(t *testing.T) {
	const events = 12_000
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		require.NoError(t, err)
		s, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{
			Group: "g", Concurrency: 1, Retry: eventbus.Retry{Delay: func(*eventbus.Delivery, error) time.Duration { return time.Hour }},
		}, func(context.Context, *eventbus.Delivery) error { return errors.New("no") })
		require.NoError(t, err)
		for i := range events {
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: fmt.Sprint(i)}))
		}
		synctest.Wait()
		list, total := s.Failing()
		require.Len(t, list, 100)
		require.Equal(t, 10_000, total)
		require.Equal(t, fmt.Sprint(events-1), list[0].ID)
		s.Pause()
		time.Sleep(2 * time.Hour)
		_, total = s.Failing()
		require.Zero(t, total)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
