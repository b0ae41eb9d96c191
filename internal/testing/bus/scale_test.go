package bus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/scale"
)

var _ scale.Group = (*eventbus.Subscription)(nil)

// A subscription follows its backlog from one handler to the greatest number and back, and each
// step is reported.
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

// The Autoscaler adds handlers while the backlog is long, whatever load the service behind them
// can take. An Adaptive keeps their runs at the number that the service can take, which is four
// here.
func TestAutoscalerWithAdaptive(t *testing.T) {
	for name, c := range map[string]struct {
		limited     bool
		least, most int64 // runs at the same time, after the first five minutes
	}{
		"without a limiter": {false, 16, 16},
		"adaptive":          {true, 4, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
				require.NoError(t, err)
				options := eventbus.SubscribeOptions{Group: "billing", MaxConcurrency: 16}
				if c.limited {
					options.Limiter = limiter.NewAdaptive(1, 16)
				}
				var running, most atomic.Int64
				s, err := bus.Subscribe(t.Context(), "orders", options,
					func(context.Context, *eventbus.Delivery) error {
						now := running.Add(1)
						defer running.Add(-1)
						most.Store(max(most.Load(), now))
						time.Sleep(100 * time.Millisecond * time.Duration(max(now-3, 1)))
						return nil
					})
				require.NoError(t, err)
				events := make([]*eventbus.Event, 20_000)
				for i := range events {
					events[i] = &eventbus.Event{Payload: fmt.Appendf(nil, "%d", i)}
				}
				for part := range slices.Chunk(events, 500) {
					require.NoError(t, bus.Publish(t.Context(), "orders", part...))
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go scale.Autoscaler{Strategy: func(scale.Group) scale.Strategy {
					return scale.Stabilized(scale.Backlog{}, 5*time.Second, 10*time.Second)
				}}.Run(ctx, s)
				time.Sleep(5 * time.Minute)
				now, _, _ := s.Handlers()
				require.Equal(t, 16, now, "the backlog is long")
				most.Store(0)
				time.Sleep(time.Minute)
				require.GreaterOrEqual(t, most.Load(), c.least)
				require.LessOrEqual(t, most.Load(), c.most)
				stop()
				require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
			})
		})
	}
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
