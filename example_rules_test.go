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

// The program names its errors once. A declined card is not retried, a busy bank is asked
// again each minute. The name is in the dead letter.
func ExampleRetryRule() {
	errDeclined, errBankBusy := errors.New("card declined"), errors.New("bank busy")
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
		ErrorClasses: []eventbus.ErrorClass{
			{Name: "declined", Is: func(err error) bool { return errors.Is(err, errDeclined) }},
			{Name: "bank-busy", Is: func(err error) bool { return errors.Is(err, errBankBusy) }},
		},
	})
	if err != nil {
		panic(err)
	}
	dead := make(chan eventbus.DeadLetter, 1)
	_, err = bus.Subscribe(context.Background(), "orders", eventbus.SubscribeOptions{
		Group: "billing",
		Retry: eventbus.Retry{Rules: []eventbus.RetryRule{
			{Class: "declined", MaxAttempts: 1},
			{Class: "bank-busy", MaxAttempts: -1, Initial: time.Minute, Max: time.Minute},
		}},
		OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { dead <- why },
	}, func(context.Context, *eventbus.Delivery) error {
		return fmt.Errorf("charging o-1: %w", errDeclined)
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(context.Background(), "orders", &eventbus.Event{TTL: time.Hour}); err != nil {
		panic(err)
	}
	why := <-dead
	fmt.Println(why.ErrorClass, "after", why.Attempts, "attempt:", why.Error)
	if err := bus.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	// Output: declined after 1 attempt: charging o-1: card declined
}
