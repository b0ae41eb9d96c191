package eventbus_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// Buses share no pooled channels or timers, because a channel of one synctest bubble is
// fatal in another.
func TestBusesInDifferentBubblesShareNothing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.NoError(t, bus.Shutdown(t.Context()))
		})
	}
}
