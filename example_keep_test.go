package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// A service that is new reads the orders of the last day, which the others have handled long ago.
func Example_keep() {
	ctx := context.Background()
	store := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(store, eventbus.Options{
		Topics: map[string]eventbus.TopicOptions{"orders": {Keep: 24 * time.Hour}},
	})
	if err != nil {
		log.Fatal(err)
	}
	handled := make(chan string)
	handler := func(_ context.Context, d *eventbus.Delivery) error {
		handled <- fmt.Sprintf("%s: %s", d.Group, d.Payload)
		return nil
	}
	if _, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"}, handler); err != nil {
		log.Fatal(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{Payload: []byte("three apples")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)

	since := eventbus.StartAt(time.Now().Add(-time.Hour))
	if _, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "fraud", Start: since}, handler); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)

	// An operator lets billing handle the last hour again.
	if err := store.ResetGroup(ctx, "orders", "billing", backend.StartAt(time.Now().Add(-time.Hour))); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// billing: three apples
	// fraud: three apples
	// billing: three apples
}
