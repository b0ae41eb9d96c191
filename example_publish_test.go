package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A stalled backend stores nothing until goOn is closed.
type stalled struct {
	backend.Backend
	reached, goOn chan struct{}
}

func (s stalled) Publish(ctx context.Context, msgs []*backend.Message) error {
	close(s.reached)
	<-s.goOn
	return s.Backend.Publish(ctx, msgs)
}

// A sensor must not wait for a slow broker. With DropNewest, two of its readings may be pending,
// and Publish drops any others at once.
func ExampleBus_Dropped() {
	ctx := context.Background()
	broker := stalled{inmemory.New(inmemory.Options{}), make(chan struct{}), make(chan struct{})}
	bus, err := eventbus.New(broker, eventbus.Options{
		MaxPending: 2, WhenFull: eventbus.DropNewest, Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	first := make(chan error)
	go func() {
		first <- bus.Publish(ctx, "readings", &eventbus.Event{Payload: []byte("20.1")}, &eventbus.Event{Payload: []byte("20.2")})
	}()
	<-broker.reached
	err = bus.Publish(ctx, "readings", &eventbus.Event{Payload: []byte("20.3")})
	fmt.Println("the third reading is dropped:", errors.Is(err, eventbus.ErrDropped))
	close(broker.goOn)
	fmt.Println("the first two:", <-first)
	fmt.Println("dropped:", bus.Dropped())
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// the third reading is dropped: true
	// the first two: <nil>
	// dropped: 1
	// <nil>
}

// Fresh positions matter more than old ones: if too many are waiting to be published, the oldest
// are dropped. Positions whose handler has failed occupy at most two of the eight handlers.
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

// A customer gets a reminder after a while, unless the payment arrives first. A report is due
// every night.
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
		err := bus.PublishIn(ctx, "reminders", time.Second/2, &eventbus.Event{ID: "remind-" + order}) // in real life: 24 hours
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
