package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A stalled backend stores messages only after it is told to go on.
type stalled struct {
	backend.Backend
	reached, goOn chan struct{}
}

func (s stalled) Publish(ctx context.Context, msgs []*backend.Message) error {
	close(s.reached)
	<-s.goOn
	return s.Backend.Publish(ctx, msgs)
}

// A sensor must not wait for a slow broker. With DropNewest two of its readings may wait,
// and Publish drops further ones immediately.
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
