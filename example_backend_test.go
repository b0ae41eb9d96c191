package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
)

// A program's own backend: the shelf and its seats have six methods together and no
// optional verb. Without verbs the bus counts attempts itself, and a retry runs when the
// lease ends. A shelf cannot extend leases, so Timeout must be shorter than Lease.
func Example_backend() {
	ctx := context.Background()
	bus, err := eventbus.New(newShelf(), eventbus.Options{})
	if err != nil {
		panic(err)
	}

	attempts := make(chan int, 2)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Lease: time.Second, Timeout: time.Second / 2,
	}, func(_ context.Context, d *eventbus.Delivery) error {
		attempts <- d.Attempt
		if d.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	})
	fmt.Println("subscribed:", err)
	fmt.Println("published:", bus.Publish(ctx, "orders", &eventbus.Event{}))
	fmt.Println("attempts:", <-attempts, <-attempts)
	fmt.Println("ended:", bus.Shutdown(ctx))
	// Output:
	// subscribed: <nil>
	// published: <nil>
	// attempts: 1 2
	// ended: <nil>
}
