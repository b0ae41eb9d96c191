package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// Events of a key that wait for its retry leave room in MaxInFlight for the redelivery.
func TestRetriesComeBackToAFullHouse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, mem, eventbus.Options{})
		defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", MaxInFlight: 4},
			func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "0" && d.Attempt == 1 {
					return errors.New("once more")
				}
				return nil
			})
		require.NoError(t, err)
		for i := range 10 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: fmt.Sprint(i), Key: "k"}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, mem.WaitSettled(ctx), "ten events, one of which is due again after a second")
	})
}
