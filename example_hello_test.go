package eventbus_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

func Example() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Service: "shop"})
	if err != nil {
		log.Fatal(err)
	}

	handled := make(chan string, 1)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(_ context.Context, d *eventbus.Delivery) error {
			handled <- fmt.Sprintf("%s from %s: %s", d.Type, d.Source, d.Payload)
			return nil // after an error, the event is redelivered later
		})
	if err != nil {
		log.Fatal(err)
	}
	err = bus.Publish(ctx, "orders", &eventbus.Event{Type: "order.placed", Payload: []byte("three apples")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order.placed from shop: three apples
}
