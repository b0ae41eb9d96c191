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

// While the answer to an acknowledgement is in flight, the broker answers Extend with
// ErrLeaseLost, because the event is acknowledged already. The handler must run.
func TestOnReceiveASlowAcknowledgementIsNotALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, slowAcks{mem}, eventbus.Options{})
		ran := 0
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive},
			func(context.Context, *eventbus.Delivery) error { ran++; return nil })
		require.NoError(t, err)
		time.Sleep(5 * time.Second) // leases are extended at 10 s
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, 1, ran, "runs of an event whose acknowledgement was confirmed within the lease; %+v", sub.Counts())
	})
}

// slowAcks is a backend that answers an Ack after 9 s of a 30 s lease.
type slowAcks struct{ backend.Backend }

func (b slowAcks) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return slowAckSource{s}, err
}

type slowAckSource struct{ backend.Source }

func (s slowAckSource) Unwrap() backend.Source { return s.Source }

func (s slowAckSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	err := s.Source.Ack(ctx, ds)
	time.Sleep(9 * time.Second)
	return err
}
