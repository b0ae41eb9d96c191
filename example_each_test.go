package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// Every instance of a program drops an entry of its cache when a price changes.
func Example_eachInstance() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var caches [2]sync.Map // of two instances
	var dropped sync.WaitGroup
	for i := range caches {
		cache := &caches[i]
		cache.Store("apple", 3)
		dropped.Add(1)
		_, err := bus.Subscribe(ctx, "prices", eventbus.SubscribeOptions{Group: eventbus.EachInstance},
			func(_ context.Context, d *eventbus.Delivery) error {
				cache.Delete(d.Key)
				dropped.Done()
				return nil
			})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := bus.Publish(ctx, "prices", &eventbus.Event{Key: "apple"}); err != nil {
		log.Fatal(err)
	}
	dropped.Wait()
	_, first := caches[0].Load("apple")
	_, second := caches[1].Load("apple")
	fmt.Println(first, second)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: false false
}
