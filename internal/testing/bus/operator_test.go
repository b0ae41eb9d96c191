package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
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

// The key of an event that waits an hour for its retry continues within some seconds after an
// operator has buried the event. A member no longer names it as one that fails. Until then
// nothing behind it runs.
func TestBuryFreesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Slog(slog.New(slog.DiscardHandler))})
		require.NoError(t, err)
		defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
		var handled []string
		position := ""
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "1" {
				position = d.Position
				return eventbus.RetryAfter(errors.New("no tax rate"), time.Hour)
			}
			handled = append(handled, d.ID)
			return nil
		})
		require.NoError(t, err)
		for i := range 4 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: fmt.Sprint(i), Key: "k"}))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"0"}, handled)
		letters, err := deadletter.Open(bus.Backend(), "orders.dlq")
		require.NoError(t, err)
		_, err = letters.Bury(t.Context(), deadletter.Burial{Topic: "orders", Group: "billing", Position: position})
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"0", "2", "3"}, handled)
		failing, n := s.Failing()
		require.Empty(t, failing)
		require.Zero(t, n)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Len(t, handled, 3)
	})
}
