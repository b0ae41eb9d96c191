package results_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/results"
	"github.com/seed41896749/eventbus/store"
)

// A program publishes an order, and waits for the number of its invoice.
func Example() {
	ctx := context.Background()
	shared := store.NewMemory(store.MemoryOptions{}) // in several processes: redisstore or natsstore
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Middleware: []eventbus.Middleware{results.Middleware(shared, results.Options{TTL: time.Hour})},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(ctx context.Context, d *eventbus.Delivery) error {
			return results.Set(ctx, fmt.Appendf(nil, "invoice 7 of %s", d.Payload))
		})
	if err != nil {
		log.Fatal(err)
	}

	receipts, err := bus.PublishReceipts(ctx, "orders", &eventbus.Event{Payload: []byte("three apples")})
	if err != nil {
		log.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	invoice, err := results.Wait(soon, shared, "orders", "billing", receipts[0].ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(invoice))
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: invoice 7 of three apples
}

// Each event of a batch has a result of its own.
func ExampleSet_batch() {
	var save func([]*eventbus.Delivery) (numbers []string, err error)
	h := func(_ context.Context, ds []*eventbus.Delivery) []error {
		errs := make([]error, len(ds))
		numbers, err := save(ds)
		for i, d := range ds {
			if errs[i] = err; err == nil {
				errs[i] = results.Set(d.Context(), []byte(numbers[i]))
			}
		}
		return errs
	}
	save = func([]*eventbus.Delivery) ([]string, error) { return []string{"7"}, nil }
	fmt.Println(h(context.Background(), []*eventbus.Delivery{{}})) // without the middleware
	// Output: [results: the context is not of a run with the middleware of package results]
}
