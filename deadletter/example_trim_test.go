package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A nightly job discards the letters of offers, because an offer is worth nothing later. Of
// the other letters it keeps the newest two, and none that is older than 30 days.
func ExampleTopic_Trim() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	dead := make(chan bool)
	_, err = bus.Subscribe(ctx, "mails", eventbus.SubscribeOptions{
		Group: "sender", OnDeadLetter: func(*eventbus.Event, eventbus.DeadLetter) { dead <- true },
	}, func(context.Context, *eventbus.Delivery) error {
		return eventbus.Permanent(errors.New("no such address"))
	})
	if err != nil {
		panic(err)
	}
	for i, kind := range []string{"bill", "offer", "bill", "bill", "offer"} {
		if err := bus.Publish(ctx, "mails", &eventbus.Event{ID: fmt.Sprint("mail-", i), Type: kind}); err != nil {
			panic(err)
		}
		<-dead
	}

	letters, err := deadletter.Open(bus.Backend(), "mails.dlq")
	if err != nil {
		panic(err)
	}
	fmt.Println(letters.Discard(ctx, deadletter.Filter{Group: "sender", Type: "offer"}))
	fmt.Println(letters.Trim(ctx, deadletter.Filter{}, deadletter.Bounds{Letters: 2, Age: 30 * 24 * time.Hour}))
	for l, err := range letters.All(ctx, deadletter.Filter{}) {
		fmt.Println(l.Event.ID, err)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// 2 <nil>
	// 1 <nil>
	// mail-2 <nil>
	// mail-3 <nil>
	// <nil>
}
