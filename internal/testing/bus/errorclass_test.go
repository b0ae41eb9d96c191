package bus_test

import (
	"context"
	"errors"
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

// damaging is a backend in memory that damages deliveries by their ID.
type damaging struct{ *inmemory.Backend }

func (b damaging) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return damagingSource{s, s.(backend.Delayer), s.(backend.Extender)}, nil
}

type damagingSource struct {
	backend.Source
	backend.Delayer
	backend.Extender
}

func (s damagingSource) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n, maxBytes)
	for i := range ds {
		switch ds[i].ID {
		case "unreadable":
			ds[i].Err = errors.New("not an entry")
		case "no-verdict":
			ds[i].Attempt = 1000
		}
	}
	return ds, err
}

// codeError is an error of the program that names its class.
type codeError struct{}

func (codeError) Error() string     { return "declined" }
func (codeError) ErrorType() string { return "card_declined" }

// hostileError is an error of the program with a broken method.
type hostileError struct{}

func (hostileError) Error() string     { return "hostile" }
func (hostileError) ErrorType() string { panic("hostile") }

// Each dead letter has a class that says something, also of an event that no handler got.
func TestClassesOfDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, damaging{inmemory.New(inmemory.Options{})}, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		classes := map[string]string{}
		_, err := bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "g", DeadLetter: eventbus.DiscardDeadLetters},
			func(_ context.Context, d *eventbus.Delivery) error {
				why, _ := eventbus.DeadLetterOf(&d.Event)
				classes[why.ID] = why.ErrorClass
				return nil
			})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "billing", MaxReceive: 10_000, DeadLetterExpired: true, OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 1},
		}, func(_ context.Context, d *eventbus.Delivery) error {
			switch d.ID {
			case "card_declined":
				return eventbus.Permanent(codeError{})
			case "bus_test.hostileError":
				return hostileError{}
			case "retry":
				return eventbus.RetryAfter(nil, time.Second)
			}
			return errors.New("first of its key")
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders",
			&eventbus.Event{ID: "unreadable", Key: "a"}, &eventbus.Event{ID: "no-verdict", Key: "b"}, &eventbus.Event{ID: "too-large", Key: "c", Payload: make([]byte, 20_000)},
			&eventbus.Event{ID: "expired", Key: "d", Time: time.Now().Add(-time.Hour), TTL: time.Second}, &eventbus.Event{ID: "*errors.errorString", Key: "e"},
			&eventbus.Event{ID: "key-failed", Key: "e"}, &eventbus.Event{ID: "card_declined", Key: "f"}, &eventbus.Event{ID: "bus_test.hostileError", Key: "g"}, &eventbus.Event{ID: "retry", Key: "h"},
		))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, classes, 9)
		for id, class := range classes {
			require.Equal(t, id, class)
		}
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// A Nack without a cause and a batch handler with a wrong number of results have classes too.
func TestClassesOfSettlementsWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		classes := map[string]string{}
		options := func(class string) eventbus.SubscribeOptions {
			return eventbus.SubscribeOptions{Group: class, Retry: eventbus.Retry{MaxAttempts: 1}, OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { classes[class] = why.ErrorClass }}
		}
		_, err := bus.SubscribeManual(t.Context(), "orders", options("nack"), func(ctx context.Context, d *eventbus.ManualDelivery) error { return d.Nack(ctx, nil) })
		require.NoError(t, err)
		_, err = bus.SubscribeBatch(t.Context(), "orders", options("batch-results"), eventbus.Batch{}, func(context.Context, []*eventbus.Delivery) []error { return make([]error, 7) })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		synctest.Wait()
		require.Equal(t, map[string]string{"nack": "nack", "batch-results": "batch-results"}, classes)
	})
}
