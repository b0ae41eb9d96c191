package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// The order of each key holds with few keys, many retries, and a backlog larger than
// MaxInFlight.
func TestOrderUnderPressure(t *testing.T) {
	for _, inFlight := range []int{8, 64, 1024} {
		synctest.Test(t, func(t *testing.T) {
			mem := inmemory.New(inmemory.Options{})
			bus := eventbustest.On(t, mem, eventbus.Options{})
			const events, keys = 1000, 7
			es := make([]*eventbus.Event, events)
			for i := range es {
				es[i] = &eventbus.Event{ID: fmt.Sprintf("%05d", i), Key: fmt.Sprint(i % keys)}
			}
			require.NoError(t, bus.Publish(t.Context(), "t", es...))
			var mu sync.Mutex
			last, failing := map[string]string{}, map[string]string{}
			var wrong []string
			_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{
				Group: "g", Concurrency: 4, MaxInFlight: inFlight, Retry: eventbus.Retry{Initial: time.Millisecond, Jitter: -1},
			}, func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if d.ID < last[d.Key] || failing[d.Key] != "" && failing[d.Key] != d.ID {
					wrong = append(wrong, fmt.Sprintf("%s after %s, while %q was failing", d.ID, last[d.Key], failing[d.Key]))
				}
				last[d.Key], failing[d.Key] = d.ID, ""
				if d.Attempt == 1 && (d.ID[4] == '3' || d.ID[3] == '5') {
					failing[d.Key] = d.ID
					return errors.New("once more")
				}
				return nil
			})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, mem.WaitSettled(ctx))
			require.NoError(t, bus.Shutdown(t.Context()))
			require.Empty(t, wrong)
		})
	}
}

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
