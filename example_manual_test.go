package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// Manual acknowledgement: the handler passes events to the program's pool, which settles
// them. An unsettled event keeps its lease and its place among MaxInFlight, so the pool
// has at most that many.
func ExampleBus_SubscribeManual() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		panic(err)
	}

	work := make(chan *eventbus.ManualDelivery, 64)
	var pool, settled sync.WaitGroup
	for range 4 {
		pool.Go(func() {
			for d := range work {
				var err error
				if len(d.Payload) == 0 && d.Attempt == 1 {
					err = d.Nack(d.Context(), eventbus.RetryAfter(fmt.Errorf("an empty picture"), 0))
				} else if err = d.Ack(d.Context()); err == nil {
					settled.Done()
				}
				if err != nil {
					log.Print(err) // the event is redelivered, to this or another member
				}
			}
		})
	}
	_, err = bus.SubscribeManual(ctx, "pictures", eventbus.SubscribeOptions{Group: "resize", MaxInFlight: 64},
		func(_ context.Context, d *eventbus.ManualDelivery) error {
			work <- d
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	settled.Add(10)
	for i := range 10 {
		if err := bus.Publish(ctx, "pictures", &eventbus.Event{Payload: make([]byte, i%2)}); err != nil {
			log.Fatal(err)
		}
	}
	settled.Wait()
	fmt.Println(bus.Shutdown(ctx)) // waits for unsettled events
	close(work)
	pool.Wait()
	// Output: <nil>
}
