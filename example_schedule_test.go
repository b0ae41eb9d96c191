package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// A customer is reminded after a while, unless the payment comes first. A report is due every
// night.
func ExampleBus_PublishIn() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	reminded := make(chan string)
	_, err = bus.Subscribe(ctx, "reminders", eventbus.SubscribeOptions{Group: "mail"},
		func(_ context.Context, d *eventbus.Delivery) error {
			reminded <- d.ID
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"o-1", "o-2"} {
		err := bus.PublishIn(ctx, "reminders", time.Second/2, &eventbus.Event{ID: "remind-" + order}) // in life: 24 hours
		if err != nil {
			log.Fatal(err)
		}
	}
	cancelled, err := bus.CancelScheduled(ctx, "reminders", "remind-o-1") // o-1 is paid
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled[0], <-reminded)

	err = bus.Recur(ctx, eventbus.Recurring{
		ID: "nightly", Topic: "reports", Cron: "0 3 * * *", Zone: "Europe/Berlin", Event: eventbus.Event{Type: "report.due"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true remind-o-2
}
