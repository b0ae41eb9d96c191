package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/observer"
)

var byType = middleware.Timeout(map[string]time.Duration{"slow": 5 * time.Second, "never": 0})

func TestTimeoutBoundsTheTypesListed(t *testing.T) {
	for _, row := range []struct {
		eventType string
		deadline  time.Duration // 0: none
	}{{"slow", 5 * time.Second}, {"never", 0}, {"other", 0}} {
		t.Run(row.eventType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				h := byType(func(ctx context.Context, _ *eventbus.Delivery) error {
					at, ok := ctx.Deadline()
					require.Equal(t, row.deadline > 0, ok, "has a deadline")
					if ok {
						require.Equal(t, row.deadline, at.Sub(start))
					}
					return nil
				})
				require.NoError(t, h(t.Context(), &eventbus.Delivery{Event: eventbus.Event{Type: row.eventType}}))
			})
		})
	}
}

func TestTimeoutIsTheCauseAndIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("gave up")
		start := time.Now()
		err := byType(func(ctx context.Context, _ *eventbus.Delivery) error {
			<-ctx.Done()
			cause, ok := errors.AsType[*observer.TimeoutError](context.Cause(ctx))
			require.True(t, ok, "cause: %v", context.Cause(ctx))
			require.Equal(t, 5*time.Second, cause.After)
			return mine
		})(t.Context(), &eventbus.Delivery{Event: eventbus.Event{Type: "slow"}})
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestTimeoutLeavesOtherErrorsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		event := &eventbus.Delivery{Event: eventbus.Event{Type: "slow"}}
		mine := errors.New("no")
		require.Equal(t, mine, byType(func(context.Context, *eventbus.Delivery) error { return mine })(t.Context(), event))
		late := byType(func(ctx context.Context, _ *eventbus.Delivery) error { <-ctx.Done(); return nil })
		require.NoError(t, late(t.Context(), event), "nil is success, however late")
	})
}

func TestTimeoutOnABus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Middleware: []eventbus.Middleware{byType}})
		_, err := bus.Subscribe(t.Context(), "jobs", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 2}},
			func(ctx context.Context, _ *eventbus.Delivery) error {
				<-ctx.Done()
				return ctx.Err()
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "jobs", &eventbus.Event{Type: "slow"}))
		start := time.Now()
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Less(t, time.Since(start), 15*time.Second, "two runs of 5 s and a pause")
		dead := bus.Published("jobs.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "timeout", dead[0].Headers.Get("eventbus-dead-error-class"))
	})
}
