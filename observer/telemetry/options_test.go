package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// System is an attribute of every span and of every metric.
func TestSystem(t *testing.T) {
	for system, want := range map[string]string{"": "eventbus", "redis": "redis"} {
		inBubble(t, telemetry.Options{System: system}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
			subscribe(t, bus, succeed)
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.Equal(t, 1, <-r.settled)
			for _, s := range r.spans.Ended() {
				require.Contains(t, s.Attributes(), attribute.String("messaging.system", want), s.Name())
			}
			for name, m := range r.collect() {
				for _, p := range points(m) {
					got, _ := p.set.Value("messaging.system")
					require.Equal(t, want, got.AsString(), name)
				}
			}
		})
	}
}

// A loud propagator writes its header in capitals, as some do.
type loud struct{ propagation.TraceContext }

func (l loud) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	c.Set("X-Trace", trace.SpanContextFromContext(ctx).TraceID().String())
}

func (l loud) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	id, err := trace.TraceIDFromHex(c.Get("X-Trace"))
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
}

// The context travels in the headers of the given propagator, in lower case.
func TestPropagator(t *testing.T) {
	inBubble(t, telemetry.Options{Propagator: loud{}, ContinueTrace: true}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d.Headers; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		h := <-got
		require.Len(t, h, 1)
		require.Equal(t, "x-trace", h[0].Name)
		require.Equal(t, 1, <-r.settled)
		require.Equal(t, h[0].Value, r.span("process", 0).SpanContext().TraceID().String())
	})
}

// By default the metrics tell 50 event types apart.
func TestFiftyEventTypes(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		subscribe(t, bus, succeed)
		for i := range 60 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: fmt.Sprintf("t%d", i)}))
		}
		time.Sleep(time.Second)
		require.Len(t, points(r.collect()["eventbus.attempts"]), 51)
		require.EqualValues(t, 10, r.value("eventbus.attempts", attribute.String("eventbus.event.type", "_OTHER")))
	})
}
