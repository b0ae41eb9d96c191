package eventbus_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// All events of a customer are handled in order in the whole group, however many processes have
// members in it.
func ExampleTopicOptions_partitions() {
	ctx := context.Background()
	options := eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 16}}}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), options)
	if err != nil {
		log.Fatal(err)
	}
	got := make(chan string)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 4}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- fmt.Sprintf("%s of %s, partition %d, epoch %d", d.Payload, d.Key, d.Partition, d.Epoch)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, payload := range []string{"order", "payment", "delivery"} {
		if err := bus.Publish(ctx, "orders", &eventbus.Event{Key: "customer-42", Payload: []byte(payload)}); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(<-got)
	}
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order of customer-42, partition 14, epoch 1
	// payment of customer-42, partition 14, epoch 1
	// delivery of customer-42, partition 14, epoch 1
}
