package bus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

// Handlers that never return do not stop the subscription, until there are too many of them:
// then State and Ready say so. When they return, all events are handled.
func TestStuckHandlersAreReplacedUpToABound(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		const handlers, events = 2, 500
		var stuck atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "g", Concurrency: handlers, Timeout: time.Second, Retry: eventbus.Retry{MaxAttempts: -1},
		}, func(context.Context, *eventbus.Delivery) error {
			stuck.Add(1)
			defer stuck.Add(-1)
			<-release
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(events)...))
		time.Sleep(time.Hour)
		require.Greater(t, stuck.Load(), int64(handlers), "stuck handlers are replaced")
		require.Less(t, stuck.Load(), int64(events)/4, "handlers that run although their time is up are bounded")
		state, err := sub.State()
		require.Equal(t, observer.Degraded, state)
		require.ErrorContains(t, err, "handlers")
		require.Error(t, bus.Ready(t.Context()))
		bound := stuck.Load()
		time.Sleep(time.Hour)
		require.Equal(t, bound, stuck.Load(), "no further handler starts")
		free()
		require.NoError(t, bus.WaitIdle(t.Context()))
		time.Sleep(time.Second) // the broker has the acknowledgements before the member counts them
		require.NoError(t, bus.Ready(t.Context()))
		state, _ = sub.State()
		require.Equal(t, observer.Running, state)
		require.EqualValues(t, events, sub.Counts().Acknowledged)
	})
}

// The state is right after many stuck handlers have returned at the same moment, each of which tells of
// it. A wrong order of two of them needs luck, so there are many.
func TestStateAfterStuckHandlers(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		const topics, handlers, rounds = 60, 2, 6
		var release atomic.Pointer[chan struct{}]
		var subs []*eventbus.Subscription
		for i := range topics {
			sub, err := bus.Subscribe(t.Context(), fmt.Sprint("topic-", i), eventbus.SubscribeOptions{Group: "g", Concurrency: handlers, Timeout: time.Second},
				func(context.Context, *eventbus.Delivery) error {
					<-*release.Load()
					return nil
				})
			require.NoError(t, err)
			subs = append(subs, sub)
		}
		for range rounds {
			c := make(chan struct{})
			release.Store(&c)
			for i := range topics {
				require.NoError(t, bus.Publish(t.Context(), fmt.Sprint("topic-", i), numbered(handlers)...))
			}
			time.Sleep(time.Minute)
			for _, sub := range subs {
				state, _ := sub.State()
				require.Equal(t, observer.Degraded, state)
			}
			close(c)
			require.NoError(t, bus.WaitIdle(t.Context()))
			time.Sleep(time.Second)
			for _, sub := range subs {
				state, err := sub.State()
				require.Equal(t, observer.Running, state, err)
			}
		}
	})
}
