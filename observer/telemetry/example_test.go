package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A program makes the SDK's providers, with the exporters of its choice. This one keeps its
// spans in memory.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	meters := sdkmetric.NewMeterProvider()

	t, err := telemetry.New(tracers, meters, telemetry.Options{ContinueTrace: true})
	if err != nil {
		log.Fatal(err)
	}
	options := eventbus.Options{Service: "shop"}
	t.Install(&options) // telemetry.Install uses the global providers
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), options)
	if err != nil {
		log.Fatal(err)
	}
	stop, err := t.Watch(bus) // gauges, such as the lag of groups
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	if err := bus.Publish(ctx, "orders", &eventbus.Event{Type: "order.placed"}); err != nil {
		log.Fatal(err)
	}
	handled := make(chan bool)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(context.Context, *eventbus.Delivery) error {
			close(handled)
			return eventbus.Permanent(errors.New("no such customer"))
		})
	if err != nil {
		log.Fatal(err)
	}
	<-handled
	if err := bus.Shutdown(ctx); err != nil { // and all spans have ended
		log.Fatal(err)
	}
	for _, s := range spans.Ended() {
		fmt.Println(s.Name())
	}
	// Output:
	// publish orders
	// process orders
	// dead-letter orders
	// acknowledge orders
}
