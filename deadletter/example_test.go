package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// The bank was closed, and an order became a dead letter. Once the bank is open, the order
// is sent to billing again, and to no other group.
func Example() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Slog(slog.New(slog.DiscardHandler))})
	if err != nil {
		panic(err)
	}
	var open atomic.Bool
	dead, charged := make(chan struct{}), make(chan string)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Retry: eventbus.Retry{MaxAttempts: 1},
		OnDeadLetter: func(*eventbus.Event, eventbus.DeadLetter) { close(dead) },
	}, func(_ context.Context, d *eventbus.Delivery) error {
		if !open.Load() {
			return errors.New("the bank is closed")
		}
		charged <- d.ID
		return nil
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{ID: "o-1", Type: "order.placed"}); err != nil {
		panic(err)
	}
	<-dead
	letters, err := deadletter.Open(bus.Backend(), "orders.dlq")
	if err != nil {
		panic(err)
	}
	classes, err := letters.Classes(ctx, deadletter.Filter{})
	if err != nil {
		panic(err)
	}
	fmt.Println(classes[0].Letters, classes[0].Group, classes[0].Reason, "-", classes[0].Error)

	open.Store(true)
	report, err := letters.Redrive(ctx, deadletter.Redrive{Filter: deadletter.Filter{Group: "billing"}})
	if err != nil {
		panic(err)
	}
	fmt.Println("redriven", report.Redriven, "charged", <-charged)
	if err := bus.Shutdown(ctx); err != nil {
		panic(err)
	}
	// Output:
	// 1 billing exhausted - the bank is closed
	// redriven 1 charged o-1
}
