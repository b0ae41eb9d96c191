package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A login code is worth nothing later, so its event has its own rule: three quick attempts,
// and no dead letter. Other events have the attempts of the subscription, 12 by default. On
// the last attempt the handler sends the code by mail.
func ExampleDelivery_LastAttempt() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	sent := make(chan string)
	_, err = bus.Subscribe(ctx, "messages", eventbus.SubscribeOptions{Group: "sender"},
		func(_ context.Context, d *eventbus.Delivery) error {
			way := "phone"
			if d.LastAttempt() {
				way = "mail"
			}
			sent <- fmt.Sprintf("%s: attempt %d of %d by %s, redelivered: %t", d.Type, d.Attempt, d.MaxAttempts, way, d.Redelivered)
			if d.Type == "code" && way == "phone" {
				return errors.New("the phone is off")
			}
			return nil
		})
	if err != nil {
		panic(err)
	}
	quick := &eventbus.RetryRule{MaxAttempts: 3, Initial: time.Millisecond, Discard: true}
	err = bus.Publish(ctx, "messages", &eventbus.Event{Type: "offer"}, &eventbus.Event{Type: "code", Retry: quick})
	if err != nil {
		panic(err)
	}
	for range 4 {
		fmt.Println(<-sent)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// offer: attempt 1 of 12 by phone, redelivered: false
	// code: attempt 1 of 3 by phone, redelivered: false
	// code: attempt 2 of 3 by phone, redelivered: true
	// code: attempt 3 of 3 by mail, redelivered: true
	// <nil>
}
