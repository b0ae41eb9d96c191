package eventbus_test

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// Fresh positions matter more than old ones: if too many wait to be published, the oldest
// are dropped. Positions whose handler has failed take two of eight handlers at most.
func Example_limits() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		MaxPending: 1000, WhenFull: eventbus.DropOldest,
	})
	if err != nil {
		panic(err)
	}
	handled := make(chan string)
	_, err = bus.Subscribe(ctx, "positions", eventbus.SubscribeOptions{
		Group: "map", Concurrency: 8, MaxRedelivered: 2,
	}, func(_ context.Context, d *eventbus.Delivery) error {
		handled <- string(d.Payload)
		return nil
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(ctx, "positions", &eventbus.Event{Key: "bus 7", Payload: []byte("52.52 N, 13.40 E")}); err != nil {
		panic(err) // errors.Is(err, eventbus.ErrDropped) if it was dropped
	}
	fmt.Println(<-handled)
	fmt.Println("dropped:", bus.Dropped())
	if err := bus.Shutdown(ctx); err != nil {
		panic(err)
	}
	// Output:
	// 52.52 N, 13.40 E
	// dropped: 0
}
