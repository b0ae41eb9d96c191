package bus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// A program may settle with the delivery's own context. Settlement ends that context, and
// must not thereby fail itself.
func TestSettlingWithTheDeliverysOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		held := make(chan *eventbus.ManualDelivery)
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(_ context.Context, d *eventbus.ManualDelivery) error { held <- d; return nil })
		require.NoError(t, err)
		for range 20 { // often enough for both outcomes of a select
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			d := <-held
			require.NoError(t, d.Nack(d.Context(), eventbus.RetryAfter(errors.New("once more"), 0)))
			require.Error(t, d.Context().Err(), "after settlement")
			d = <-held
			require.NoError(t, d.Ack(d.Context()))
			require.Error(t, d.Context().Err(), "after settlement")
		}
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// A typed handler of SubscribeManual gets the decoded value and settles its delivery. An
// event that cannot be decoded goes to the dead-letter topic without a call.
func TestManualHandlerDecodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		orders := eventbus.Topic[int]{Name: "orders"}
		var got []int
		h := orders.ManualHandler(func(ctx context.Context, n int, d *eventbus.ManualDelivery) error {
			got = append(got, n)
			return d.Ack(ctx)
		})
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, h)
		require.NoError(t, err)
		var letters []string
		_, err = bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "g", DeadLetter: eventbus.DiscardDeadLetters},
			func(_ context.Context, d *eventbus.Delivery) error {
				letters = append(letters, string(d.Payload))
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte("no number")}))
		require.NoError(t, orders.Publish(t.Context(), bus, 7))
		synctest.Wait()
		require.Equal(t, []int{7}, got)
		require.Equal(t, []string{"no number"}, letters)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Nil(t, orders.ManualHandler(nil))
	})
}

// A middleware that replaces the context, or copies the Delivery, breaks no settlement. A
// middleware that makes a new Delivery fails the event.
func TestSettlingBehindAnyMiddleware(t *testing.T) {
	for name, row := range map[string]struct {
		pass  func(next eventbus.Handler, d *eventbus.Delivery) error
		fails string
	}{
		"another context": {pass: func(next eventbus.Handler, d *eventbus.Delivery) error { return next(another(), d) }},
		"a copy": {pass: func(next eventbus.Handler, d *eventbus.Delivery) error {
			copied := *d
			return next(another(), &copied)
		}},
		"a new delivery": {fails: "of its own", pass: func(next eventbus.Handler, d *eventbus.Delivery) error {
			return next(another(), &eventbus.Delivery{Event: d.Event})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failures []string
				bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{
					Middleware: []eventbus.Middleware{func(next eventbus.Handler) eventbus.Handler {
						return func(_ context.Context, d *eventbus.Delivery) error { return row.pass(next, d) }
					}},
				})
				var acked []error
				s, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{
					Group: "g", Retry: eventbus.Retry{MaxAttempts: 1},
					OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { failures = append(failures, why.Error) },
				}, func(ctx context.Context, d *eventbus.ManualDelivery) error {
					acked = append(acked, d.Ack(ctx))
					return nil
				})
				require.NoError(t, err)
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
				synctest.Wait()
				if row.fails == "" {
					require.Equal(t, []error{nil}, acked)
					require.Empty(t, failures)
				} else {
					require.Empty(t, acked)
					require.Len(t, failures, 1)
					require.Contains(t, failures[0], row.fails)
				}
				require.NoError(t, bus.Shutdown(t.Context()))
				require.EqualValues(t, 1, s.Counts().Acknowledged)
			})
		})
	}
}

// another returns a context that shares nothing with the context of a handler.
func another() context.Context { return context.Background() }
