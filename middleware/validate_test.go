package middleware_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestValidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filled := func(e *eventbus.Event) error {
			if len(e.Payload) == 0 {
				return errors.New("the payload is empty")
			}
			return nil
		}
		refuse := func(*eventbus.Event) error { return errors.New("unknown") }
		bus := with(t, middleware.Validate(map[string]middleware.Check{"order": filled}, refuse))
		var handled []string
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { handled = append(handled, d.ID); return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders",
			&eventbus.Event{ID: "good", Type: "order", Payload: []byte("x")}, &eventbus.Event{ID: "empty", Type: "order"}, &eventbus.Event{ID: "other"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []string{"good"}, handled)
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 2)
		for i, want := range []string{`eventbus: invalid event of type "order": the payload is empty`, `eventbus: invalid event of type "": unknown`} {
			letter, _ := eventbus.DeadLetterOf(&dead[i])
			require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
			require.Equal(t, 1, letter.Attempts, "no retry")
			require.Equal(t, want, letter.Error)
		}

		accepts := middleware.Validate(nil, nil)(func(context.Context, *eventbus.Delivery) error { return errBroken })
		require.Equal(t, errBroken, accepts(t.Context(), &eventbus.Delivery{}))
	})
}

// An invalid event is no failed run, and a rule of IgnoreErrors for the error of its check
// does not acknowledge it.
func TestInvalidEventsAreNoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.IgnoreErrors(middleware.Is(io.EOF)),
			middleware.Validate(nil, func(*eventbus.Event) error { return io.EOF }))
		s := subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, bus.Published("orders.dlq"), 1)
		require.Zero(t, s.Counts().Failures)
	})
}
