package middleware_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

func correlated(t *testing.T) *eventbustest.Bus {
	receive, publish := middleware.Correlate()
	return eventbustest.NewWith(t, eventbus.Options{
		Middleware:        []eventbus.Middleware{receive},
		PublishMiddleware: []eventbus.PublishMiddleware{publish},
	})
}

// forward publishes the event that make returns to one topic for each event of another.
func forward(t *testing.T, bus *eventbustest.Bus, from, to string, make func() *eventbus.Event) {
	t.Helper()
	_, err := bus.Subscribe(t.Context(), from, eventbus.SubscribeOptions{Group: "forward"},
		func(ctx context.Context, _ *eventbus.Delivery) error { return bus.Publish(ctx, to, make()) })
	require.NoError(t, err)
}

func TestCorrelateFollowsAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := correlated(t)
		forward(t, bus, "orders", "bills", func() *eventbus.Event { return &eventbus.Event{ID: "bill"} })
		forward(t, bus, "bills", "letters", func() *eventbus.Event { return &eventbus.Event{ID: "letter"} })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "order"}))
		require.NoError(t, bus.WaitIdle(t.Context()))

		require.Empty(t, bus.Published("orders")[0].Headers, "published outside of a handler")
		for topic, want := range map[string]struct{ correlation, causation string }{
			"bills": {"order", "order"}, "letters": {"order", "bill"},
		} {
			got := bus.Published(topic)
			require.Len(t, got, 1, topic)
			require.Equal(t, want.correlation, got[0].Headers.Get(middleware.CorrelationID), topic)
			require.Equal(t, want.causation, got[0].Headers.Get(middleware.CausationID), topic)
		}
	})
}

func TestCorrelateKeepsWhatTheProgramSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := correlated(t)
		forward(t, bus, "orders", "bills", func() *eventbus.Event {
			return &eventbus.Event{Headers: eventbus.Headers{{Name: middleware.CorrelationID, Value: "mine"}}}
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "order"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		got := bus.Published("bills")[0].Headers
		require.Equal(t, "mine", got.Get(middleware.CorrelationID))
		require.Equal(t, "order", got.Get(middleware.CausationID))
	})
}

// The race detector reports a write to the shared slice.
func TestCorrelateLeavesSharedHeadersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := correlated(t)
		shared := make(eventbus.Headers, 1, 8)
		shared[0] = eventbus.Header{Name: "tenant", Value: "blue"}
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "forward", Concurrency: 8},
			func(ctx context.Context, _ *eventbus.Delivery) error {
				return bus.Publish(ctx, "bills", &eventbus.Event{Headers: shared}, &eventbus.Event{Headers: shared})
			})
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, bus.Published("bills"), 200)
		require.Equal(t, make(eventbus.Headers, 7), shared[:8][1:], "behind the slice's end")

		seen := map[string]int{}
		for _, e := range bus.Published("bills") {
			require.Equal(t, "blue", e.Headers.Get("tenant"))
			seen[e.Headers.Get(middleware.CausationID)]++
		}
		require.Len(t, seen, 100, "each cause twice")
	})
}

func TestCorrelateLeavesNilEventsToPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := correlated(t)
		errs := make(chan error, 1)
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(ctx context.Context, _ *eventbus.Delivery) error {
				errs <- bus.Publish(ctx, "bills", nil)
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.ErrorContains(t, <-errs, "is nil")
	})
}

// An event whose headers reach a limit of Publish is published without the headers that do
// not fit, as it would be outside of a handler.
func TestCorrelateLeavesAFullEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := make(eventbus.Headers, eventbus.MaxHeaders-1)
		for i := range full {
			full[i].Name = fmt.Sprint("h", i)
		}
		large := eventbus.Headers{{Name: "h", Value: strings.Repeat("x", eventbus.MaxHeaderBytes-10)}}
		for want, headers := range map[int]eventbus.Headers{eventbus.MaxHeaders: full, 1: large} {
			bus := correlated(t)
			forward(t, bus, "orders", "bills", func() *eventbus.Event { return &eventbus.Event{Headers: headers} })
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "order"}))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Len(t, bus.Published("bills"), 1)
			require.Len(t, bus.Published("bills")[0].Headers, want)
		}
	})
}
