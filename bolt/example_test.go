package bolt_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/bolt"
)

// An event outlives the bus that has published it, and so the process.
func ExampleDriver() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	url := "bolt:" + filepath.ToSlash(filepath.Join(folder, "events.db"))

	bus, err := eventbus.Open(ctx, url, eventbus.Options{Service: "shop"}, bolt.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("published:", bus.Publish(ctx, "orders", &eventbus.Event{Payload: []byte("three apples")}))
	fmt.Println("ended:", bus.Shutdown(ctx))

	bus, err = eventbus.Open(ctx, url, eventbus.Options{Service: "shop"}, bolt.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	handled := make(chan string, 1)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(_ context.Context, d *eventbus.Delivery) error {
			handled <- string(d.Payload)
			return nil
		})
	fmt.Println("subscribed:", err)
	fmt.Println("handled:", <-handled)
	fmt.Println("ended:", bus.Shutdown(ctx))
	// Output:
	// published: <nil>
	// ended: <nil>
	// subscribed: <nil>
	// handled: three apples
	// ended: <nil>
}
