package bus_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A group that an operator has paused and resumed is running again, also without events.
func TestResumedGroupRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus, err := eventbus.New(mem, eventbus.Options{})
		require.NoError(t, err)
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, succeed)
		require.NoError(t, err)
		require.NoError(t, mem.Pause(t.Context(), "orders", "g", backend.Pause{By: "ops"}))
		time.Sleep(15 * time.Second)
		state, err := sub.State()
		require.NotEqual(t, observer.Running, state)
		require.ErrorIs(t, err, backend.ErrPaused)
		require.NoError(t, mem.Resume(t.Context(), "orders", "g"))
		time.Sleep(time.Minute)
		state, err = sub.State()
		require.NoError(t, err)
		require.Equal(t, observer.Running, state)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
