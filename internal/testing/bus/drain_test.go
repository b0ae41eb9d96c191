package bus_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

type deafBackend struct{ backend.Backend }

func (b deafBackend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return deafSource{s}, err
}

type deafSource struct{ backend.Source }

func (s deafSource) Unwrap() backend.Source                         { return s.Source }
func (s deafSource) Ack(context.Context, []*backend.Delivery) error { return backend.ErrUnavailable }

func TestADrainSaysWhatItCouldNotAcknowledge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, deafBackend{inmemory.New(inmemory.Options{})}, eventbus.Options{})
		handled := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"},
			func(context.Context, *eventbus.Delivery) error { close(handled); return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		<-handled
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var d *eventbus.DrainError
		require.ErrorAs(t, bus.Shutdown(ctx), &d)
		require.Equal(t, 1, d.Abandoned[0].Unsettled)
	})
}

// The observer is told of the end of the bus after all else, also if the context of
// Shutdown has ended.
func TestTheObserverIsToldOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last string
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{
			Settled:      func(observer.Settled) { last = "settled" },
			StateChanged: func(e observer.StateChanged) { last = string(e.To) },
			Stopped:      func(e observer.Stopped) { last += ", stopped"; require.NoError(t, e.Err) },
		}})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for range 5000 { // more than wait for the observer
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = bus.Shutdown(ctx) // an error about events is allowed
		require.Equal(t, "closed, stopped", last)
	})
}
