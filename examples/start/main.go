// Command start is the service of docs/getting-started.md. It takes orders over HTTP, and
// bills them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// An Order is the payload of the events.
type Order struct {
	ID, Customer string
	Cents        int
}

var orders = eventbus.Topic[Order]{
	Name: "shop.orders", Type: "order.placed",
	Key: func(o Order) string { return o.Customer }, // orders of one customer are billed in order
}

var (
	errDeclined = errors.New("the card is declined")
	errSilent   = errors.New("the bank isn't responding")
)

// bill handles an order. It may get an order again, so a real one asks the bank with the ID.
func bill(_ context.Context, o Order, d *eventbus.Delivery) error {
	switch {
	case o.Cents > 1000_00:
		return eventbus.Permanent(errDeclined) // retrying won't help
	case o.Cents%2 == 1 && d.Attempt == 1:
		return errSilent // the next attempt is about a second later
	}
	fmt.Fprintln(os.Stdout, "billed", o.ID, "in attempt", d.Attempt)
	return nil
}

// place answers a request when its order is stored.
func place(bus eventbus.Publisher) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := orders.Publish(r.Context(), bus, o); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func run(ctx context.Context, url, address string) error {
	bus, err := eventbus.Open(ctx, url, eventbus.Options{
		Service: "shop", OpenTimeout: time.Minute,
		ErrorClasses: []eventbus.ErrorClass{{Name: "bank-silent", Is: func(err error) bool { return errors.Is(err, errSilent) }}},
	}, inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return err
	}
	_, err = orders.Subscribe(ctx, bus, eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 8,
		Retry: eventbus.Retry{Rules: []eventbus.RetryRule{
			{Class: "bank-silent", MaxAttempts: 100, Initial: time.Second, Max: time.Minute},
		}},
	}, bill)
	if err != nil {
		return errors.Join(err, bus.Shutdown(ctx))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", place(bus))
	return bus.Serve(ctx, &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Second})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("BUS_URL"), "mem:"), "localhost:8080"); err != nil {
		log.Fatal(err)
	}
}
