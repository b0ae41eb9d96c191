// Command orders is a whole service: it takes orders over HTTP, bills and mails them, retries
// by error class, serves metrics, and redrives orders that the bank has declined.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/redisstream"
)

type order struct {
	ID    string
	Cents int
}

func (o order) key() string { return o.ID }

type shop struct{ limit int } // of the bank

var (
	placed    = eventbus.Topic[order]{Name: "orders", Type: "order.placed", Key: order.key}
	cancelled = eventbus.Topic[order]{Name: "orders", Type: "order.cancelled", Key: order.key}

	errDeclined, errBusy = errors.New("card declined"), errors.New("bank busy")
	classes              = []eventbus.ErrorClass{{Name: "declined", Is: is(errDeclined)}, {Name: "bank-busy", Is: is(errBusy)}}
)

func main() {
	url := flag.String("url", "mem:", "the `broker`")
	address := flag.String("http", "127.0.0.1:8080", "the `address` to serve")
	limit := flag.Int("limit", 10_000, "the bank declines more `cents`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *address, shop{*limit}); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends. The server ends before the bus, because requests publish.
func run(ctx context.Context, url, address string, s shop) (err error) {
	exporter, err := otelprometheus.New()
	if err != nil {
		return err
	}
	t, err := telemetry.New(nil, sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), telemetry.Options{ErrorClasses: classes})
	if err != nil {
		return err
	}
	options := eventbus.Options{Service: "orders", ErrorClasses: classes, OpenTimeout: time.Minute}
	t.Install(&options)
	bus, err := eventbus.Open(ctx, url, options, inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Shutdown(context.WithoutCancel(ctx))) }()
	_, billing := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 4, Lease: 2 * time.Second,
		Retry: eventbus.Retry{Initial: 50 * time.Millisecond, Rules: []eventbus.RetryRule{{Class: "declined", MaxAttempts: 1}, {Class: "bank-busy", MaxAttempts: -1}}},
	}, eventbus.ByType(map[string]eventbus.Handler{placed.Type: placed.Handler(s.charge), cancelled.Type: cancelled.Handler(s.printID("refunded"))}, nil))
	_, mail := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "mail", Lease: 2 * time.Second},
		eventbus.ByType(map[string]eventbus.Handler{placed.Type: placed.Handler(s.printID("mailed")), cancelled.Type: cancelled.Handler(s.printID("mailed"))}, nil))
	_, watching := t.Watch(bus)
	letters, err := deadletter.Open(bus.Backend(), "orders.dlq")
	if err = errors.Join(billing, mail, watching, err); err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("POST /orders", take(bus, placed))
	mux.Handle("POST /cancellations", take(bus, cancelled))
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("POST /redrive", func(w http.ResponseWriter, r *http.Request) {
		report, err := letters.Redrive(r.Context(), deadletter.Redrive{Filter: deadletter.Filter{ErrorClass: "declined"}})
		answer(w, report, err)
	})
	return bus.Serve(ctx, &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Second})
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// take returns an HTTP handler that publishes an order, and answers when the order is
// stored.
func take(bus eventbus.Publisher, topic eventbus.Topic[order]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest) // another try does not help
			return
		}
		answer(w, o, topic.Publish(r.Context(), bus, o))
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

func (s shop) charge(ctx context.Context, o order, d *eventbus.Delivery) error {
	switch {
	case o.Cents > s.limit:
		return errDeclined
	case o.Cents%10 == 7 && d.Attempt < 3:
		return errBusy
	}
	return s.printID("charged")(ctx, o, d)
}

// printID returns a handler that prints a word and the ID of the order.
func (shop) printID(what string) func(context.Context, order, *eventbus.Delivery) error {
	return func(_ context.Context, o order, _ *eventbus.Delivery) error {
		_, err := fmt.Fprintln(os.Stdout, what, o.ID)
		return err
	}
}
