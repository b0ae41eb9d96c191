package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/store"
)

func TestDedupeMarksAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{}))
		runs := map[string]int{}
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if runs[d.ID]++; d.ID == "fails once" && runs[d.ID] == 1 || d.ID == "fails" {
				return errBroken
			}
			return nil
		})
		for range 3 { // without keys, so a failed event does not delay the others
			for _, id := range []string{"good", "fails once", "fails"} {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
			}
			require.NoError(t, bus.WaitIdle(t.Context()))
		}
		require.Equal(t, map[string]int{"good": 1, "fails once": 2, "fails": 9}, runs)
		require.EqualValues(t, 4, s.Counts().Discarded, "each duplicate is counted")
	})
}

func TestDedupeSeparatesGroupsTopicsAndIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byHeader := func(d *eventbus.Delivery) string { return d.Headers.Get("request") }
		bus := with(t, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{ID: byHeader}))
		var mu sync.Mutex
		runs := map[string]int{}
		for _, topic := range []string{"a", "b"} {
			for _, group := range []string{"x", "y"} {
				_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: group}, func(_ context.Context, d *eventbus.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs[d.Topic+d.Group+d.Headers.Get("request")]++
					return nil
				})
				require.NoError(t, err)
			}
			for range 2 {
				require.NoError(t, bus.Publish(t.Context(), topic,
					&eventbus.Event{Headers: eventbus.Headers{{Name: "request", Value: "1"}}}, &eventbus.Event{}))
			}
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{"ax1": 1, "ay1": 1, "bx1": 1, "by1": 1, "ax": 2, "ay": 2, "bx": 2, "by": 2}, runs)
	})
}

// brokenStore is a store that fails.
type brokenStore struct{ get, set error }

func (b *brokenStore) Get(context.Context, string) ([]byte, bool, error)        { return nil, false, b.get }
func (b *brokenStore) Set(context.Context, string, []byte, time.Duration) error { return b.set }

func TestDedupeWithABrokenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &brokenStore{get: errBroken}
		var told []error
		bus := with(t, middleware.Dedupe(broken, middleware.DedupeOptions{
			OnError: func(_ context.Context, d *eventbus.Delivery, err error) {
				told = append(told, fmt.Errorf("%s: %w", d.ID, err))
			},
		}))
		runs := 0
		subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { runs++; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Zero(t, runs)
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1, "an event that cannot be looked up is retried, and then kept")
		require.Equal(t, `eventbus: dedupe: look up "dedupe/orders/g/1": broken`, dead[0].Headers.Get("eventbus-dead-error"))

		broken.get, broken.set = nil, errBroken
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "2"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 1, runs, "an event that cannot be marked has succeeded")
		require.Len(t, told, 1)
		require.EqualError(t, told[0], `2: eventbus: dedupe: mark "dedupe/orders/g/2": broken`)
	})
}

func TestWithoutOnErrorAWarningIsLogged(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(textLogger(&out))
	h := middleware.Dedupe(&brokenStore{set: errBroken}, middleware.DedupeOptions{})(
		func(context.Context, *eventbus.Delivery) error { return nil })
	d := &eventbus.Delivery{Topic: "orders", Group: "g", Attempt: 2, Event: eventbus.Event{ID: "1", Payload: []byte("secret")}}
	require.NoError(t, h(t.Context(), d))
	require.Equal(t, `level=WARN msg="eventbus: middleware failed" topic=orders group=g id=1 attempt=2 `+
		`error="eventbus: dedupe: mark \"dedupe/orders/g/1\": broken"`+"\n", out.String())
}

// A ManualHandler returns before its event is handled.
func TestDedupeLeavesManualDeliveriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{}))
		runs := 0
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Second},
			func(_ context.Context, d *eventbus.ManualDelivery) error {
				if runs++; runs == 1 {
					return nil // and it is never settled: it fails after the timeout
				}
				go func() { _ = d.Ack(context.WithoutCancel(t.Context())) }()
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 2, runs, "the event was not handled by the first call")
	})
}

// A handled event is remembered for Age, and for 24 hours by default. There is no bus, because its
// maintenance would make a day of fake time slow.
func TestDedupeRemembersForAge(t *testing.T) {
	for want, o := range map[time.Duration]middleware.DedupeOptions{24 * time.Hour: {}, time.Minute: {Age: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			handle := middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), o)(func(context.Context, *eventbus.Delivery) error {
				runs++
				return nil
			})
			for _, step := range []struct {
				wait time.Duration
				runs int
			}{{0, 1}, {want - time.Second, 1}, {2 * time.Second, 2}} {
				time.Sleep(step.wait)
				_ = handle(t.Context(), &eventbus.Delivery{Event: eventbus.Event{ID: "1"}, Topic: "orders", Group: "g"})
				require.Equal(t, step.runs, runs)
			}
		})
	}
}

// A store that does not answer holds a handler for seconds, although the run's own context
// does not end the call.
func TestDedupeMarkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		o := middleware.DedupeOptions{OnError: func(_ context.Context, _ *eventbus.Delivery, err error) { failures = append(failures, err) }}
		bus := with(t, middleware.Dedupe(silentStore{}, o))
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Second}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(10 * time.Second)
		require.Zero(t, s.Counts().Running)
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], context.DeadlineExceeded)
	})
}

// silentStore is a store whose Set ends with its context only.
type silentStore struct{}

func (silentStore) Get(context.Context, string) ([]byte, bool, error) { return nil, false, nil }

func (silentStore) Set(ctx context.Context, _ string, _ []byte, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// An event that Dedupe discards is no failed run, so many duplicates do not open a breaker.
func TestDuplicatesAreNoFailedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{}))
		breaker := limiter.NewBreaker(limiter.BreakerOptions{})
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Limiter: breaker},
			func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for range 30 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		}
		synctest.Wait()
		require.Equal(t, limiter.Closed, breaker.State())
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, 29, s.Counts().Discarded)
		require.Zero(t, s.Counts().Failures)
	})
}
