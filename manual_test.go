package eventbus_test

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
