//go:build !race

package telemetry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// Metrics alone cost one allocation for a handled event, its tag, and none for a published
// one. The test is not built with the race detector, because a sync.Pool loses values then.
func TestAllocations(t *testing.T) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tel, err := telemetry.New(nil, meters, telemetry.Options{})
	require.NoError(t, err)
	d := &eventbus.Delivery{Event: eventbus.Event{ID: "o-1", Type: "order.placed"}, Topic: "orders", Group: "billing", Attempt: 1}
	handle := tel.Middleware(func(context.Context, *eventbus.Delivery) error { return nil })
	hooks := tel.Observer()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_ = handle(t.Context(), d)
		hooks.Handled(observer.Handled{About: observer.About{Topic: "orders", Group: "billing"}, Outcome: observer.Acknowledge})
	}), 1.0)
	publisher := tel.PublishMiddleware(eventbus.PublisherFunc(func(context.Context, string, ...*eventbus.Event) error { return nil }))
	events := []*eventbus.Event{{ID: "o-1"}}
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = publisher.Publish(t.Context(), "orders", events...) }))
}
