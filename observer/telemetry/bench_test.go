package telemetry_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// BenchmarkEvent publishes events one by one in memory and handles them, with more and more
// telemetry. Spans have no exporter.
func BenchmarkEvent(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tracers := func(share float64) trace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	quiet := eventbus.Options{Observer: observer.Observer{Noticed: func(observer.Noticed) {}}}
	with := func(tracers trace.TracerProvider) eventbus.Options {
		t, err := telemetry.New(tracers, meters, telemetry.Options{ContinueTrace: true})
		require.NoError(b, err)
		return eventbus.Options{
			Observer: t.Observer(), Middleware: []eventbus.Middleware{t.Middleware},
			PublishMiddleware: []eventbus.PublishMiddleware{t.PublishMiddleware},
		}
	}
	for _, row := range []struct {
		name    string
		options eventbus.Options
	}{
		{"without", quiet},
		{"metrics", with(nil)},
		{"metrics, no trace sampled", with(tracers(0))},
		{"metrics, one trace in 100 sampled", with(tracers(0.01))},
		{"metrics, all traces sampled", with(tracers(1))},
	} {
		b.Run(row.name, func(b *testing.B) { lives(b, row.options) })
	}
}

func lives(b *testing.B, o eventbus.Options) {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
	require.NoError(b, err)
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	_, err = bus.Subscribe(b.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(context.Context, *eventbus.Delivery) error {
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		})
	require.NoError(b, err)
	payload := make([]byte, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		require.NoError(b, bus.Publish(b.Context(), "orders", &eventbus.Event{Type: "order.placed", Payload: payload}))
	}
	<-done
	b.StopTimer()
	require.NoError(b, bus.Shutdown(context.WithoutCancel(b.Context())))
}
