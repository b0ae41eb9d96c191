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
