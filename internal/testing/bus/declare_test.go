package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// A group that was declared gets the events published since then, whatever its Start.
func TestDeclareKeepsEvents(t *testing.T) {
	for _, start := range []eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest} {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			o := eventbus.SubscribeOptions{Group: "g", Start: start}
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "before"}))
			require.NoError(t, bus.Declare(t.Context(), "orders", o))
			require.NoError(t, bus.Declare(t.Context(), "orders", o), "again it changes nothing")
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "after"}))
			require.NoError(t, bus.Declare(t.Context(), "orders", o))
			var got arrivals
			_, err := bus.Subscribe(t.Context(), "orders", o, got.handle)
			require.NoError(t, err)
			require.NoError(t, bus.WaitIdle(t.Context()))
			want := []string{"before", "after"}
			if start == eventbus.StartLatest {
				want = want[1:]
			}
			require.Equal(t, want, got.ids())
		})
	}
}

// Declare refuses options with the errors of Subscribe, and makes nothing for patterns and
// instances.
func TestDeclareRefuses(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		for _, row := range []struct {
			topic string
			o     eventbus.SubscribeOptions
		}{
			{"orders", eventbus.SubscribeOptions{}},
			{"or ders", eventbus.SubscribeOptions{Group: "g"}},
			{"orders", eventbus.SubscribeOptions{Group: "g", Concurrency: -1}},
		} {
			_, err := bus.Subscribe(t.Context(), row.topic, row.o, succeed)
			require.Error(t, err)
			require.EqualError(t, bus.Declare(t.Context(), row.topic, row.o), err.Error())
		}
		require.NoError(t, bus.Declare(t.Context(), "orders.*", eventbus.SubscribeOptions{Group: "g"}))
		require.NoError(t, bus.Declare(t.Context(), "orders", eventbus.SubscribeOptions{Group: eventbus.EachInstance}))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.ErrorIs(t, bus.Declare(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}), eventbus.ErrClosed)
	})
}

// Options returns the settings in force, with the defaults of the bus.
func TestOptionsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Timeout: 7 * time.Second})
		given := eventbus.SubscribeOptions{Group: "g", Concurrency: 3, Topics: []string{"a", "b"}, Retry: eventbus.Retry{Rules: []eventbus.RetryRule{{Class: "panic", MaxAttempts: 1}}}}
		s, err := bus.Subscribe(t.Context(), "", given, succeed)
		require.NoError(t, err)
		o := s.Options()
		require.Equal(t, 7*time.Second, o.Timeout)
		require.Equal(t, 30*time.Second, o.Lease)
		require.Equal(t, 3, o.Concurrency)
		require.Equal(t, 12, o.Retry.MaxAttempts)
		require.Equal(t, given.Topics, o.Topics)
		o.Topics[0], o.Retry.Rules[0].Class = "x", "x"
		require.Equal(t, given.Topics, s.Options().Topics, "the caller has a copy")
		require.Equal(t, given.Retry.Rules, s.Options().Retry.Rules)

		batch, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 20}, eventbus.Batch{}, func(context.Context, []*eventbus.Delivery) []error { return nil })
		require.NoError(t, err)
		require.Equal(t, 2000, batch.Options().MaxInFlight)
		require.Equal(t, "orders.dlq", batch.Options().DeadLetter)

		each, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, succeed)
		require.NoError(t, err)
		require.Equal(t, each.Group(), each.Options().Group)
		require.Equal(t, eventbus.StartLatest, each.Options().Start)
	})
}
