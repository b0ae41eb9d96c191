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

// The context at hand where a delivery is settled is the delivery's own. It ends
// with settlement, and must not end the call that settles.
func TestSettlingWithTheDeliverysOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		held := make(chan *eventbus.ManualDelivery)
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(_ context.Context, d *eventbus.ManualDelivery) error { held <- d; return nil })
		require.NoError(t, err)
		for range 20 { // both outcomes of a select would come up
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
