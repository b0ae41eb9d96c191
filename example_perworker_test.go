package eventbus_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// Eight handlers each have a hash of their own. They share the channel.
func ExamplePerWorker() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Shutdown(ctx)

	sums := make(chan string, 100)
	h := eventbus.PerWorker(func() eventbus.Handler {
		sum := sha256.New() // of this handler, so it needs no lock
		return func(_ context.Context, d *eventbus.Delivery) error {
			sum.Reset()
			sum.Write(d.Payload)
			sums <- fmt.Sprintf("%s %x", d.Payload, sum.Sum(nil)[:4]) // all handlers share sums
			return nil
		}
	})
	_, err = bus.Subscribe(ctx, "files", eventbus.SubscribeOptions{Group: "checksums", Concurrency: 8}, h)
	if err != nil {
		log.Fatal(err)
	}

	for _, name := range []string{"apple", "pear"} {
		if err := bus.Publish(ctx, "files", &eventbus.Event{Payload: []byte(name)}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(<-sums)
	fmt.Println(<-sums)
	// Unordered output:
	// apple 3a7bd3e2
	// pear 97cfbe87
}
