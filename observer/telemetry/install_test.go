package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// Install uses the global providers, and keeps the observer and the middlewares of the
// options.
func TestInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
		t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
		handled, wrapped := 0, 0
		o := eventbus.Options{
			Observer: observer.Observer{Handled: func(observer.Handled) { handled++ }},
			Middleware: []eventbus.Middleware{func(next eventbus.Handler) eventbus.Handler {
				return func(ctx context.Context, d *eventbus.Delivery) error { wrapped++; return next(ctx, d) }
			}},
		}
		_, err := telemetry.Install(&o)
		require.NoError(t, err)
		bus := eventbustest.NewWith(t, o)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"},
			func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, []int{1, 1}, []int{handled, wrapped})
		var names []string
		for _, s := range spans.Ended() {
			names = append(names, s.Name())
		}
		require.ElementsMatch(t, []string{"publish orders", "process orders", "acknowledge orders"}, names)
	})
}
