package eventbus_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/observer"
)

// onlyOf handles the events of one tenant and drops all others.
func onlyOf(tenant string) eventbus.Middleware {
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			if d.Headers.Get("tenant") != tenant {
				return eventbus.Drop("of another tenant")
			}
			return next(ctx, d)
		}
	}
}

// Middleware changes how events are handled; an observer only watches.
func Example_middleware() {
	ctx := context.Background()
	correlate, stamp := middleware.Correlate()
	handled := make(chan observer.Handled, 2)
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Middleware:        []eventbus.Middleware{correlate, onlyOf("blue")},
		PublishMiddleware: []eventbus.PublishMiddleware{stamp},
		Observer:          observer.Join(observer.Slog(nil), observer.Observer{Handled: func(h observer.Handled) { handled <- h }}),
	})
	if err != nil {
		panic(err)
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(ctx context.Context, _ *eventbus.Delivery) error {
			return bus.Publish(ctx, "bills", &eventbus.Event{}) // Correlate adds the ID of the order
		})
	if err != nil {
		log.Fatal(err)
	}
	err = bus.Publish(ctx, "orders",
		&eventbus.Event{ID: "1", Headers: eventbus.Headers{{Name: "tenant", Value: "blue"}}},
		&eventbus.Event{ID: "2", Headers: eventbus.Headers{{Name: "tenant", Value: "red"}}})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		h := <-handled
		fmt.Println(h.ID, h.Outcome, h.Err)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// 1 acknowledge <nil>
	// 2 discard dropped: of another tenant
	// <nil>
}
