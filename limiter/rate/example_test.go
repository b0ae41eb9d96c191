package rate_test

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter/rate"
)

// Two subscriptions together call a service at most a thousand times a second.
func ExampleNew() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		panic(err)
	}
	service := rate.New(1000, 20)
	calls := make(chan string, 2)
	for _, topic := range []string{"orders", "refunds"} {
		o := eventbus.SubscribeOptions{Group: "billing", Limiter: service}
		_, err := bus.Subscribe(ctx, topic, o, func(_ context.Context, d *eventbus.Delivery) error {
			calls <- d.Topic
			return nil
		})
		if err != nil {
			panic(err)
		}
		if err := bus.Publish(ctx, topic, &eventbus.Event{}); err != nil {
			panic(err)
		}
		fmt.Println(<-calls)
	}
	if err := bus.Shutdown(ctx); err != nil {
		panic(err)
	}
	// Output:
	// orders
	// refunds
}
