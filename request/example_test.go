package request_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/request"
)

// A service answers requests for prices, and another program asks for one.
func Example() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = bus.Subscribe(ctx, "prices", eventbus.SubscribeOptions{Group: "prices"},
		request.Handler(bus, func(_ context.Context, d *eventbus.Delivery) (*eventbus.Event, error) {
			return &eventbus.Event{Payload: fmt.Appendf(nil, "%s cost 3 euros", d.Payload)}, nil
		}))
	if err != nil {
		log.Fatal(err)
	}

	client, err := request.New(ctx, bus, "shop.replies", request.Options{})
	if err != nil {
		log.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	reply, err := client.Do(soon, "prices", &eventbus.Event{Payload: []byte("apples")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", reply.Payload)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: apples cost 3 euros
}
