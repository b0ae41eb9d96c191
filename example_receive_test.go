package eventbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A screen shows scores of the last minute. Its handler gets neither an expired event nor
// an event above MaxReceive. Both become dead letters, which say the reason.
func ExampleSubscribeOptions_maxReceive() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	fate := make(chan string)
	_, err = bus.Subscribe(ctx, "scores", eventbus.SubscribeOptions{
		Group:             "screen",
		MaxReceive:        4 << 10,
		DeadLetterExpired: true, // by default expired events are discarded
		OnDeadLetter:      func(e *eventbus.Event, why eventbus.DeadLetter) { fate <- e.ID + " " + why.Reason },
	}, func(_ context.Context, d *eventbus.Delivery) error {
		fate <- d.ID + " shown"
		return nil
	})
	if err != nil {
		panic(err)
	}
	for _, e := range []*eventbus.Event{
		{ID: "final", TTL: time.Minute, Payload: []byte("2:1")},
		{ID: "half-time", TTL: time.Minute, Payload: []byte("1:1"), Time: time.Now().Add(-time.Hour)},
		{ID: "film", TTL: time.Minute, Payload: make([]byte, 100<<10)},
	} {
		if err := bus.Publish(ctx, "scores", e); err != nil {
			panic(err)
		}
		fmt.Println(<-fate)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// final shown
	// half-time expired
	// film too-large
	// <nil>
}
