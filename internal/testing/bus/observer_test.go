package bus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

// Every hook of the observer about a run and its settlement gets the tag of the run. A later
// run has a tag of its own.
func TestTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // Handled runs on the handler's goroutine, other hooks on theirs
		tags := map[string][]any{}
		note := func(hook string) func(any) {
			return func(tag any) {
				mu.Lock()
				defer mu.Unlock()
				tags[hook] = append(tags[hook], tag)
			}
		}
		bus := eventbustest.NewWith(t, eventbus.Options{Observer: observer.Observer{
			Handled:      func(e observer.Handled) { note("handled")(e.Tag) },
			Retried:      func(e observer.Retried) { note("retried")(e.Tag) },
			DeadLettered: func(e observer.DeadLettered) { note("dead-lettered")(e.Tag) },
			Settled:      func(e observer.Settled) { note("settled")(e.Tags) },
			Failed:       func(e observer.Failed) { note("failed")(e.Tag) },
		}})
		eventbus.Tag(t.Context(), "outside of a run: ignored")
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 3}},
			func(ctx context.Context, d *eventbus.Delivery) error {
				derived, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				switch d.Attempt {
				case 1:
					eventbus.Tag(derived, "replaced")
					eventbus.Tag(derived, "first")
					return errors.New("no")
				case 2:
					eventbus.Tag(ctx, "second")
					panic("boom")
				}
				eventbus.Tag(ctx, "third")
				return errors.New("no")
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.NoError(t, bus.Shutdown(t.Context())) // all hooks have run then
		require.Equal(t, map[string][]any{
			"handled": {"first", "second", "third"}, "retried": {"first", "second"}, "failed": {"second"},
			"dead-lettered": {"third"}, "settled": {[]any{"third"}},
		}, tags)
	})
}

// Subscriptions lists the subscriptions that are not drained. Stats has the answer of the
// backend about the whole group.
func TestSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		block := make(chan struct{})
		names := func() (names []string) {
			for _, s := range bus.Subscriptions() {
				names = append(names, s.Topic()+"/"+s.Group())
			}
			return names
		}
		require.Empty(t, names())
		var last *eventbus.Subscription
		for _, place := range [][2]string{{"orders", "billing"}, {"orders", "audit"}, {"bills", "mail"}} {
			s, err := bus.Subscribe(t.Context(), place[0], eventbus.SubscribeOptions{Group: place[1]},
				func(context.Context, *eventbus.Delivery) error { <-block; return nil })
			require.NoError(t, err)
			last = s
		}
		require.Equal(t, []string{"bills/mail", "orders/audit", "orders/billing"}, names())
		require.NoError(t, bus.Publish(t.Context(), "bills", &eventbus.Event{Payload: make([]byte, 100)}))
		synctest.Wait()
		counts := last.Counts()
		require.EqualValues(t, 1, counts.Held)
		require.EqualValues(t, 1, counts.Running)
		require.Greater(t, counts.HeldBytes, int64(100))
		stats, err := last.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.InFlight)
		close(block)
		require.NoError(t, last.Drain(t.Context()))
		require.Zero(t, last.Counts().Held)
		require.Equal(t, []string{"orders/audit", "orders/billing"}, names())
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Empty(t, names())
	})
}

// Started comes before each run, on its goroutine, and has the type of the event. An event
// that the bus settles without a run has no Started.
func TestStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var steps []string
		note := func(step string, a observer.About) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, fmt.Sprintf("%s %s/%s %s %s #%d", step, a.Topic, a.Group, a.ID, a.Type, a.Attempt))
		}
		bus := eventbustest.NewWith(t, eventbus.Options{Observer: observer.Observer{
			Started:      func(e observer.Started) { note("started", e.About) },
			Handled:      func(e observer.Handled) { note("handled", e.About) },
			DeadLettered: func(e observer.DeadLettered) { note("dead", e.About) },
		}})
		handle := func(id string, attempt int) error {
			note("runs", observer.About{ID: id, Attempt: attempt})
			if attempt == 1 {
				return errors.New("no")
			}
			return nil
		}
		o := eventbus.SubscribeOptions{Group: "g", MaxReceive: 1000}
		_, err := bus.Subscribe(t.Context(), "orders", o, func(_ context.Context, d *eventbus.Delivery) error {
			return handle(d.ID, d.Attempt)
		})
		require.NoError(t, err)
		_, err = bus.SubscribeBatch(t.Context(), "batch", o, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
			return []error{handle(ds[0].ID, ds[0].Attempt)}
		})
		require.NoError(t, err)
		for _, topic := range []string{"orders", "batch"} {
			steps = nil
			require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{ID: "1", Type: "order.placed"}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, []string{
				"started " + topic + "/g 1 order.placed #1", "runs / 1  #1", "handled " + topic + "/g 1 order.placed #1",
				"started " + topic + "/g 1 order.placed #2", "runs / 1  #2", "handled " + topic + "/g 1 order.placed #2",
			}, steps)
			steps = nil
			require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{ID: "large", Type: "t", Payload: make([]byte, 1001)}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			synctest.Wait()
			require.Equal(t, []string{"dead " + topic + "/g large t #1"}, steps)
		}
	})
}

// A hook Started that panics, or ends its goroutine, ends no worker.
func TestStartedThatPanics(t *testing.T) {
	for _, end := range []func(){func() { panic("boom") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.NewWith(t, eventbus.Options{Observer: observer.Observer{Started: func(e observer.Started) {
				if e.Attempt == 1 {
					end()
				}
			}}})
			runs := 0
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
				runs++
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Equal(t, 2, runs)
		})
	}
}
