package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// A dead letter states its reason; an ordinary event is not a dead letter.
func TestDeadLetterOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2}},
			func(_ context.Context, d *eventbus.Delivery) error {
				_, dead := eventbus.DeadLetterOf(&d.Event)
				require.False(t, dead)
				return fmt.Errorf("run %d: %w", d.Attempt, errors.New("no"))
			})
		require.NoError(t, err)
		var got eventbus.DeadLetter
		_, err = bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "mend", DeadLetter: eventbus.DiscardDeadLetters},
			func(_ context.Context, d *eventbus.Delivery) (err error) {
				var dead bool
				got, dead = eventbus.DeadLetterOf(&d.Event)
				require.True(t, dead)
				return nil
			})
		require.NoError(t, err)
		start := time.Now()
		event := &eventbus.Event{ID: "o-1"}
		require.NoError(t, bus.Publish(t.Context(), "orders", event))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.WithinRange(t, got.LastAttempt, start.Add(800*time.Millisecond), start.Add(1200*time.Millisecond))
		got.LastAttempt = time.Time{}
		require.Equal(t, eventbus.DeadLetter{
			Reason: eventbus.ReasonExhausted, Error: "run 2: no", ErrorClass: "*errors.errorString", Attempts: 2,
			Topic: "orders", Group: "billing", ID: "o-1", Position: event.Position,
		}, got)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}
