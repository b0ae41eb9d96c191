// Command hello is the program of the README.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

type Purchase struct{ Customer, Item string }

var purchases = eventbus.Topic[Purchase]{
	Name: "shop.purchases", Type: "purchase.made",
	Key: func(p Purchase) string { return p.Customer }, // events of one customer stay in order
}

func main() {
	ctx := context.Background()
	bus, err := eventbus.Open(ctx, cmp.Or(os.Getenv("BUS_URL"), "mem:"), eventbus.Options{Service: "shop"},
		inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	paid := make(chan string, 1)
	_, err = purchases.Subscribe(ctx, bus, eventbus.SubscribeOptions{Group: "billing"},
		func(_ context.Context, p Purchase, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("the bank isn't responding") // the event is redelivered about a second later
			}
			paid <- fmt.Sprintf("%s pays for %s, attempt %d", p.Customer, p.Item, d.Attempt)
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	if err := purchases.Publish(ctx, bus, Purchase{"ada", "three apples"}); err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, <-paid)
	if err := bus.Shutdown(ctx); err != nil { // it waits for running handlers
		log.Fatal(err)
	}
}
