package eventbus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// A read that waited longer than a lease returns an event whose lease has just begun.
func TestWhatComesAfterAnIdleHourIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, mem, eventbus.Options{})
		var errs []error
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(ctx context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Second)
				errs = append(errs, context.Cause(ctx))
				return nil
			})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		require.NoError(t, mem.WaitSettled(t.Context()))
		require.Zero(t, sub.Counts().LeasesLost)
		require.Equal(t, []error{nil, nil}, errs)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
