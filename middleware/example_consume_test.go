package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/store"
)

// handled runs h for each event on a bus with o, and returns when all have been handled.
func handled(o eventbus.Options, h eventbus.Handler, events ...*eventbus.Event) {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
	if err != nil {
		log.Fatal(err)
	}
	runs := make(chan struct{}, len(events))
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"}, func(ctx context.Context, d *eventbus.Delivery) error {
		defer func() { runs <- struct{}{} }()
		return h(ctx, d)
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := bus.Publish(ctx, "orders", events...); err != nil {
		log.Fatal(err)
	}
	for range events {
		<-runs
	}
	if err := bus.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}

func show(_ context.Context, d *eventbus.Delivery) error {
	fmt.Println("handled", d.ID)
	return nil
}

// A redelivered event, or a second one with its ID, is not handled again.
func ExampleDedupe() {
	dedupe := middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{})
	h := dedupe(show)
	d := &eventbus.Delivery{Topic: "orders", Group: "billing", Event: eventbus.Event{ID: "1"}}
	fmt.Println(h(context.Background(), d))
	fmt.Println(h(context.Background(), d)) // the bus counts it as discarded
	// Output:
	// handled 1
	// <nil>
	// dropped: handled before
}

// Each tenant may have ten events a second, and five at once.
func ExampleThrottle() {
	throttle := middleware.Throttle(10, middleware.ThrottleOptions{
		Burst:  5,
		Bucket: func(d *eventbus.Delivery) string { return d.Headers.Get("tenant") },
	})
	handled(eventbus.Options{Middleware: []eventbus.Middleware{throttle}}, show, &eventbus.Event{ID: "1"})
	// Output:
	// handled 1
}

// The bus publishes its audit to a topic of its own.
func ExampleAudit() {
	ctx := context.Background()
	var bus *eventbus.Bus
	audit := middleware.Audit(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		return bus.Publish(ctx, topic, events...)
	}), "audit", middleware.AuditOptions{})
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Middleware: []eventbus.Middleware{audit}})
	if err != nil {
		panic(err)
	}
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
		func(context.Context, *eventbus.Delivery) error {
			return eventbus.Permanent(errors.New("no such customer"))
		})
	if err != nil {
		panic(err)
	}
	audited := make(chan middleware.AuditRecord, 1)
	records := eventbus.Topic[middleware.AuditRecord]{Name: "audit", Type: middleware.AuditType}
	_, err = records.Subscribe(ctx, bus, eventbus.SubscribeOptions{Group: "show"},
		func(_ context.Context, r middleware.AuditRecord, _ *eventbus.Delivery) error {
			audited <- r
			return nil
		})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{ID: "1"}); err != nil {
		panic(err)
	}
	r := <-audited
	fmt.Println(r.Topic, r.Group, r.ID, r.Attempt, r.Outcome, r.Error)
	_ = bus.Shutdown(ctx)
	// Output: orders billing 1 1 failure no such customer
}

// An order that was paid before needs no second payment, and no retry.
func ExampleIgnoreErrors() {
	errPaid := errors.New("already paid")
	ignore := middleware.IgnoreErrors(middleware.Is(errPaid), middleware.As[*eventbus.FieldError]())
	h := ignore(func(context.Context, *eventbus.Delivery) error { return fmt.Errorf("pay: %w", errPaid) })
	fmt.Println(h(context.Background(), &eventbus.Delivery{}))
	// Output: <nil>
}

// Orders need a subject; events of other types are accepted.
func ExampleValidate() {
	validate := middleware.Validate(map[string]middleware.Check{
		"order.placed": func(e *eventbus.Event) error {
			if e.Subject == "" {
				return errors.New("the subject is empty")
			}
			return nil
		},
	}, nil)
	h := validate(show)
	for _, e := range []eventbus.Event{{ID: "1", Type: "order.placed", Subject: "o-1"}, {ID: "2", Type: "order.placed"}} {
		fmt.Println(h(context.Background(), &eventbus.Delivery{Event: e}))
	}
	// Output:
	// handled 1
	// <nil>
	// eventbus: invalid event of type "order.placed": the subject is empty
}
