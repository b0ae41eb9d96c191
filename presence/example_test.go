package presence_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/presence"
)

// A process announces itself, and another part of the program reads the heartbeat.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Service: "shop"})
	if err != nil {
		panic(err)
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 4},
		func(context.Context, *eventbus.Delivery) error { return nil })
	if err != nil {
		panic(err)
	}
	here, err := presence.New(ctx, bus, presence.Options{Service: "shop"})
	if err != nil {
		panic(err)
	}
	go func() {
		defer stop()
		for ctx.Err() == nil {
			processes, err := presence.Processes(ctx, bus.Backend())
			if err != nil || len(processes) == 0 {
				time.Sleep(time.Millisecond)
				continue // it has written no heartbeat yet
			}
			s := processes[0].Subscriptions[0]
			fmt.Printf("%s works for %s of %s with %d handlers and the lease %s\n", processes[0].Service, s.Group, s.Topic, s.Handlers, s.Settings["Lease"])
			return
		}
	}()
	if err := bus.Serve(ctx, here); err != nil { // until ctx ends
		panic(err)
	}
	// Output: shop works for billing of orders with 4 handlers and the lease 30s
}
