package eventbus_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// What one bus keeps for later use must not get into another: a channel or a
// timer made in one synctest bubble is fatal in the next.
func TestBusesInDifferentBubblesShareNothing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.NoError(t, bus.Shutdown(t.Context()))
		})
	}
}
