package telemetry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// The carriers of other programs write "Traceparent", which is found. Headers of another
// spelling are replaced, so that an event never has two contexts.
func TestHeadersInAnyCase(t *testing.T) {
	inBubble(t, telemetry.Options{ContinueTrace: true}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		const carried = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d.Headers; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: "Traceparent", Value: carried}}}))
		require.Equal(t, eventbus.Headers{{Name: "Traceparent", Value: carried}}, <-got, "the event was created before")
		<-r.settled
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", r.span("process", 0).SpanContext().TraceID().String())

		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: "TraceParent", Value: "nonsense"}, {Name: "Tenant", Value: "blue"}}}))
		headers := <-got
		require.Len(t, headers, 2)
		require.Equal(t, eventbus.Header{Name: "Tenant", Value: "blue"}, headers[0])
		require.Equal(t, "traceparent", headers[1].Name)
		require.Contains(t, headers[1].Value, "00-")
	})
}
