package eventbus_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

func ExampleByType() {
	placed := eventbus.Topic[int]{Name: "orders", Type: "order.placed"}
	h := eventbus.ByType(map[string]eventbus.Handler{
		placed.Type: placed.Handler(func(_ context.Context, items int, _ *eventbus.Delivery) error {
			fmt.Println("placed:", items)
			return nil
		}),
		"order.cancelled": func(_ context.Context, d *eventbus.Delivery) error {
			fmt.Println("cancelled:", d.Subject)
			return nil
		},
	}, nil)
	ctx := context.Background()
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.placed", Payload: []byte("3")}}))
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.cancelled", Subject: "o-1"}}))
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.lost"}}))
	// Output:
	// placed: 3
	// <nil>
	// cancelled: o-1
	// <nil>
	// eventbus: no handler for events of type "order.lost"
}

// One subscription handles the orders of every country, including countries that are added later.
// All topics share its handlers and limits.
func ExampleBus_Subscribe_topics() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	got := make(chan string)
	o := eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 4,
		Topics:  []string{"orders.*", "refunds"}, // one pattern alone may also be the topic
		Timeout: time.Minute,
	}
	s, err := bus.Subscribe(ctx, "", o, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.Topic + ": " + string(d.Payload)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, topic := range []string{"refunds", "orders.de", "orders.fr"} {
		if err := bus.Publish(ctx, topic, &eventbus.Event{Payload: []byte("three apples")}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-got) // a new topic is found within two seconds
	}
	fmt.Println(s.Topics())
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// refunds: three apples
	// orders.de: three apples
	// orders.fr: three apples
	// [orders.de orders.fr refunds]
}

// The events of a customer are handled in order across the whole group, however many processes
// have members in it.
func ExampleTopicOptions_partitions() {
	ctx := context.Background()
	options := eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 16}}}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), options)
	if err != nil {
		log.Fatal(err)
	}
	got := make(chan string)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 4}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- fmt.Sprintf("%s of %s, partition %d, epoch %d", d.Payload, d.Key, d.Partition, d.Epoch)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, payload := range []string{"order", "payment", "delivery"} {
		if err := bus.Publish(ctx, "orders", &eventbus.Event{Key: "customer-42", Payload: []byte(payload)}); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(<-got)
	}
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order of customer-42, partition 14, epoch 1
	// payment of customer-42, partition 14, epoch 1
	// delivery of customer-42, partition 14, epoch 1
}

// Every instance of a program drops an entry from its cache when a price changes.
func Example_eachInstance() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var caches [2]sync.Map // of two instances
	var dropped sync.WaitGroup
	for i := range caches {
		cache := &caches[i]
		cache.Store("apple", 3)
		dropped.Add(1)
		_, err := bus.Subscribe(ctx, "prices", eventbus.SubscribeOptions{Group: eventbus.EachInstance},
			func(_ context.Context, d *eventbus.Delivery) error {
				cache.Delete(d.Key)
				dropped.Done()
				return nil
			})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := bus.Publish(ctx, "prices", &eventbus.Event{Key: "apple"}); err != nil {
		log.Fatal(err)
	}
	dropped.Wait()
	_, first := caches[0].Load("apple")
	_, second := caches[1].Load("apple")
	fmt.Println(first, second)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: false false
}

// A new service reads the orders of the last hour, which the other services have already handled.
func Example_keep() {
	ctx := context.Background()
	store := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(store, eventbus.Options{
		Topics: map[string]eventbus.TopicOptions{"orders": {Keep: 24 * time.Hour}},
	})
	if err != nil {
		log.Fatal(err)
	}
	handled := make(chan string)
	handler := func(_ context.Context, d *eventbus.Delivery) error {
		handled <- fmt.Sprintf("%s: %s", d.Group, d.Payload)
		return nil
	}
	if _, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"}, handler); err != nil {
		log.Fatal(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{Payload: []byte("three apples")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)

	since := eventbus.StartAt(time.Now().Add(-time.Hour))
	if _, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "fraud", Start: since}, handler); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)

	// An operator lets billing handle the last hour again.
	if err := store.ResetGroup(ctx, "orders", "billing", backend.StartAt(time.Now().Add(-time.Hour))); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// billing: three apples
	// fraud: three apples
	// billing: three apples
}

// With manual acknowledgement the handler passes events to the program's own pool, which settles
// them. An unsettled event keeps its lease and counts toward MaxInFlight, so the pool never has
// more events than that.
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

// Each of eight concurrent handlers has its own hash. They share the channel.
func ExamplePerWorker() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Shutdown(ctx)

	sums := make(chan string, 100)
	h := eventbus.PerWorker(func() eventbus.Handler {
		sum := sha256.New() // of this handler, so it needs no lock
		return func(_ context.Context, d *eventbus.Delivery) error {
			sum.Reset()
			sum.Write(d.Payload)
			sums <- fmt.Sprintf("%s %x", d.Payload, sum.Sum(nil)[:4]) // all handlers share sums
			return nil
		}
	})
	_, err = bus.Subscribe(ctx, "files", eventbus.SubscribeOptions{Group: "checksums", Concurrency: 8}, h)
	if err != nil {
		log.Fatal(err)
	}

	for _, name := range []string{"apple", "pear"} {
		if err := bus.Publish(ctx, "files", &eventbus.Event{Payload: []byte(name)}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(<-sums)
	fmt.Println(<-sums)
	// Unordered output:
	// apple 3a7bd3e2
	// pear 97cfbe87
}

// A batch handler writes a hundred rows with one statement. Each event has its own result: a row
// that the database refuses becomes a dead letter, and the others are done.
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

// A typed batch handler gets values. An event that cannot be decoded becomes a dead letter by
// itself, and the handler does not see it.
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
