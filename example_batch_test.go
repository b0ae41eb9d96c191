package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// A typed handler of batches gets values. An event that cannot be decoded is dead-lettered
// for itself, and the handler does not see it.
func ExampleTopic_BatchHandler() {
	type order struct{ Cents int }
	orders := eventbus.Topic[order]{Name: "orders"}
	h := orders.BatchHandler(func(_ context.Context, os []order, _ []*eventbus.Delivery) []error {
		fmt.Println(os)
		return nil // all are handled
	})
	results := h(context.Background(), []*eventbus.Delivery{
		{Event: eventbus.Event{Payload: []byte(`{"Cents":12}`)}},
		{Event: eventbus.Event{Payload: []byte(`?`)}},
		{Event: eventbus.Event{Payload: []byte(`{"Cents":13}`)}},
	})
	fmt.Println(results[0], results[2])
	fmt.Println(results[1])
	// Output:
	// [{12} {13}]
	// <nil> <nil>
	// eventbus: decode from orders: invalid character '?' looking for beginning of value
}

// A handler of batches writes a hundred rows with one statement. Each event has its own
// result: a row that the database refuses is dead-lettered, and the others are done.
func ExampleBus_SubscribeBatch() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		panic(err)
	}
	rows := make([]*eventbus.Event, 150)
	for i := range rows {
		rows[i] = &eventbus.Event{Payload: fmt.Appendf(nil, "row %d", i)}
	}
	rows[7].Payload = nil
	if err := bus.Publish(ctx, "rows", rows...); err != nil {
		panic(err)
	}

	var left sync.WaitGroup
	left.Add(len(rows))
	stored, calls := 0, 0
	_, err = bus.SubscribeBatch(ctx, "rows", eventbus.SubscribeOptions{Group: "database"}, eventbus.Batch{MaxSize: 100},
		func(_ context.Context, ds []*eventbus.Delivery) []error {
			calls++
			errs := make([]error, len(ds))
			for i, d := range ds {
				if len(d.Payload) == 0 {
					errs[i] = eventbus.Permanent(errors.New("an empty row"))
				} else {
					stored++
				}
				left.Done()
			}
			return errs
		})
	if err != nil {
		panic(err)
	}
	left.Wait()
	fmt.Println(stored, "rows, fewer calls than rows:", calls < len(rows)/2)
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// 149 rows, fewer calls than rows: true
	// <nil>
}
