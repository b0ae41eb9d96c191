package config_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A program subscribes by the names in its file, and adds the other options in code.
func ExampleOpen() {
	ctx := context.Background()
	bus, cfg, err := config.Open(ctx, "testdata/eventbus.yaml", func(o *eventbus.Options) {
		o.Observer = observer.Observer{Handled: func(observer.Handled) {}}
	}, inmemory.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	billed := make(chan string)
	_, err = cfg.Subscribe(ctx, bus, "billing", func(_ context.Context, d *eventbus.Delivery) error {
		billed <- d.Topic + " from " + d.Source
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("nobody handles:", cfg.Unused())

	topic, o, err := cfg.Subscription("audit")
	if err != nil {
		log.Fatal(err)
	}
	o.Limiter = limiter.Both(64, 1<<20)
	if _, err := bus.Subscribe(ctx, topic, o, func(context.Context, *eventbus.Delivery) error { return nil }); err != nil {
		log.Fatal(err)
	}
	fmt.Println("nobody handles:", cfg.Unused())

	if err := bus.Publish(ctx, "shop.orders", &eventbus.Event{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("billed:", <-billed)
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// nobody handles: [audit]
	// nobody handles: []
	// billed: shop.orders from shop
	// <nil>
}

// The file bounds the batches of a handler that takes several events in one call.
func ExampleConfig_SubscribeBatch() {
	ctx := context.Background()
	cfg, err := config.Parse("eventbus.yaml", []byte(`
bus:
  url: "mem:"
  subscriptions:
    rows: {topic: rows, group: database, batch: {size: 3, wait: 1m}}
`), nil)
	if err != nil {
		log.Fatal(err)
	}
	bus, err := cfg.Open(ctx, nil, inmemory.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	stored := make(chan int)
	_, err = cfg.SubscribeBatch(ctx, bus, "rows", func(_ context.Context, ds []*eventbus.Delivery) []error {
		stored <- len(ds)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := bus.Publish(ctx, "rows", &eventbus.Event{}, &eventbus.Event{}, &eventbus.Event{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("rows in one call:", <-stored)
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// rows in one call: 3
	// <nil>
}

// All errors are reported together, each with its place.
func ExampleParse() {
	_, err := config.Parse("eventbus.yaml", []byte(`
bus:
  url: redis://shop:${REDIS_PASSWORD}@redis
  subscriptions:
    billing:
      topic: shop.orders
      group: billing
      lease: "30"
      conurrency: 16
`), nil)
	fmt.Println(err)
	// Output:
	// eventbus.yaml:3:8: bus.url: the variable REDIS_PASSWORD of the environment is not set
	// eventbus.yaml:8:14: bus.subscriptions.billing.lease: "30": missing unit, such as 30s
	// eventbus.yaml:9:7: bus.subscriptions.billing: unknown key "conurrency"; did you mean concurrency?
}
