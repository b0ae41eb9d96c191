package lifecycle_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

// BenchmarkEvent publishes and handles events, with and without records.
func BenchmarkEvent(b *testing.B) {
	for name, o := range map[string]*lifecycle.Options{"without": nil, "records": {OnDrop: func(int64, error) {}}} {
		b.Run(name, func(b *testing.B) {
			broker := inmemory.New(inmemory.Options{})
			options := eventbus.Options{Observer: observer.Observer{Stopped: func(observer.Stopped) {}}}
			if o != nil {
				r := lifecycle.New(*o)
				require.NoError(b, r.Start(b.Context(), broker))
				b.Cleanup(func() {
					require.NoError(b, r.Close(context.WithoutCancel(b.Context())))
					b.Logf("%d records dropped", r.Dropped())
				})
				options.Observer = r.Observer()
			}
			bus, err := eventbus.New(broker, options)
			require.NoError(b, err)
			handled := make(chan struct{}, 1)
			_, err = bus.Subscribe(b.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
				handled <- struct{}{}
				return nil
			})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, bus.Publish(b.Context(), "orders", &eventbus.Event{ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10", Type: "order.placed"}))
				<-handled
			}
			require.NoError(b, bus.Shutdown(context.WithoutCancel(b.Context())))
		})
	}
}
