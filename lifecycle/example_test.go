package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

// A service publishes the records of its events, and another program follows them.
func Example() {
	ctx := context.Background()
	records := lifecycle.New(lifecycle.Options{})
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Join(observer.Observer{}, records.Observer()), // the first: observer.Slog(nil)
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := records.Start(ctx, bus.Backend()); err != nil {
		log.Fatal(err)
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(context.Context, *eventbus.Delivery) error {
			return eventbus.Permanent(errors.New("no such customer"))
		})
	if err != nil {
		log.Fatal(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{ID: "7", Type: "order.placed"}); err != nil {
		log.Fatal(err)
	}

	for r, err := range lifecycle.Follow(ctx, bus.Backend(), "orders") { // in another process
		if err != nil {
			log.Fatal(err)
		}
		if r.State == lifecycle.Failed {
			fmt.Println(r.Group, r.Type, r.ID, r.Attempt, r.Error)
			break
		}
	}
	if err := errors.Join(bus.Shutdown(ctx), records.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output: billing order.placed 7 1 no such customer
}
