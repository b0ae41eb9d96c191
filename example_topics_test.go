package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// One subscription has the orders of every country, also of a country that is added later. All
// topics share its handlers and limits.
func ExampleBus_Subscribe_topics() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	got := make(chan string)
	o := eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 4,
		Topics:  []string{"orders.*", "refunds"}, // one pattern alone may also be the topic
		Timeout: time.Minute,
	}
	s, err := bus.Subscribe(ctx, "", o, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.Topic + ": " + string(d.Payload)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, topic := range []string{"refunds", "orders.de", "orders.fr"} {
		if err := bus.Publish(ctx, topic, &eventbus.Event{Payload: []byte("three apples")}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-got) // a new topic is found within two seconds
	}
	fmt.Println(s.Topics())
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// refunds: three apples
	// orders.de: three apples
	// orders.fr: three apples
	// [orders.de orders.fr refunds]
}
