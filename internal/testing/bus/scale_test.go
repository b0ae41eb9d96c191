package bus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/scale"
)

var _ scale.Group = (*eventbus.Subscription)(nil)

// A subscription follows its backlog from one handler to the greatest number and back, and each
// step is told.
func TestAutoscaler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
		require.NoError(t, err)
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 1, MaxConcurrency: 5}, func(context.Context, *eventbus.Delivery) error {
			time.Sleep(time.Second)
			return nil
		})
		require.NoError(t, err)
		for i := range 600 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: fmt.Appendf(nil, "%d", i)}))
		}
		var mu sync.Mutex
		var trace []int
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go scale.Autoscaler{Decided: func(d scale.Decision) {
			mu.Lock()
			defer mu.Unlock()
			if now, _, _ := s.Handlers(); d.Done {
				trace = append(trace, now)
			}
		}}.Run(ctx, s)
		time.Sleep(8 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []int{2, 3, 4, 5, 4, 3, 2, 1}, trace)
		require.EqualValues(t, 600, s.Counts().Acknowledged)
		stop()
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

// A range of handlers is checked, and the error names both ends.
func TestConcurrencyRange(t *testing.T) {
	for _, o := range []eventbus.SubscribeOptions{
		{Concurrency: 8, MaxConcurrency: 2}, {Concurrency: 1, MaxConcurrency: -1}, {Order: eventbus.OrderTotal, MaxConcurrency: 2}, {MaxConcurrency: 8, MaxInFlight: 4},
	} {
		o.Group = "g"
		_, err := o.Effective("orders")
		var field *eventbus.FieldError
		require.ErrorAs(t, err, &field, "%+v", o)
		require.True(t, slices.Contains([]string{"SubscribeOptions.MaxConcurrency", "SubscribeOptions.Concurrency", "SubscribeOptions.MaxInFlight"}, field.Field), field)
	}
	o, err := eventbus.SubscribeOptions{Group: "g", Concurrency: 3}.Effective("orders")
	require.NoError(t, err)
	require.Equal(t, 3, o.MaxConcurrency, "it is fixed")
}
