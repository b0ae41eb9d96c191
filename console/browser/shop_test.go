package browser_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/presence"
)

// A shop is a program with groups in each state that the console knows.
//
//	billing    keeps up; some orders become dead letters
//	loyalty    keeps up, but one order waits an hour for its next attempt
//	shipping   is slow
//	mail       hangs
//	audit      is paused
//	reports    has no members
//	tracking   reads a topic with partitions
type shop struct {
	t   *testing.T
	bus *eventbus.Bus

	orders int           // published
	pace   time.Duration // of shipping for each order
	closed chan struct{} // ends the handler that hangs
	rates  map[string]float64

	mended  atomic.Bool // billing no longer fails
	charged sync.Map    // the payloads that billing has got since then, by the order
}

const (
	ordersTopic   = "shop.orders"
	lettersTopic  = "shop.orders.dlq"
	productsTopic = "shop.products"
	parcelsTopic  = "shop.parcels"
)

var (
	errDeclined = errors.New("the bank has declined the card")
	errSilent   = errors.New("no answer from https://bank.example/charge within 5s")
)

// newShop opens a shop on b, whose handlers run until the test ends.
func newShop(t *testing.T, b backend.Backend, pace time.Duration) *shop {
	t.Helper()
	records := lifecycle.New(lifecycle.Options{Source: "checkout", OnDrop: func(int64, error) {}})
	bus, err := eventbus.New(kept{b}, eventbus.Options{
		Service:  "https://shop.example/checkout",
		Observer: observer.Join(observer.Slog(slog.New(slog.DiscardHandler)), records.Observer()), // its handlers fail on purpose
		Topics: map[string]eventbus.TopicOptions{
			ordersTopic:  {Groups: []string{"reports"}, Keep: time.Hour},
			parcelsTopic: {Partitions: 4},
		},
		ErrorClasses: []eventbus.ErrorClass{
			{Name: "card-declined", Is: func(err error) bool { return errors.Is(err, errDeclined) }},
			{Name: "bank-silent", Is: func(err error) bool { return errors.Is(err, errSilent) }},
		},
	})
	require.NoError(t, err)
	require.NoError(t, records.Start(t.Context(), kept{b}))
	here, err := presence.New(t.Context(), bus, presence.Options{Service: "https://shop.example/checkout", Version: "v2.7.1", OnFailure: func(error) {}})
	require.NoError(t, err)
	go func() { _ = here.ListenAndServe() }() // it returns nil
	s := &shop{t: t, bus: bus, pace: pace, closed: make(chan struct{})}
	t.Cleanup(func() {
		close(s.closed)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) //nolint:usetesting // the context of the test has ended
		defer cancel()
		_ = here.Shutdown(ctx)
		_ = bus.Shutdown(ctx) // of the broker, only the end of the test matters
		_ = records.Close(ctx)
	})
	s.subscribe("billing", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2, Initial: 10 * time.Millisecond}}, s.bill)
	s.subscribe("loyalty", eventbus.SubscribeOptions{Order: eventbus.Unordered}, func(_ context.Context, d *eventbus.Delivery) error {
		if number(d) == 5 {
			return eventbus.RetryAfter(errors.New("the customer has no account yet"), time.Hour)
		}
		return nil
	})
	s.subscribe("shipping", eventbus.SubscribeOptions{MaxInFlight: 1, Timeout: -1}, func(ctx context.Context, _ *eventbus.Delivery) error {
		return s.wait(ctx, s.pace)
	})
	s.subscribe("mail", eventbus.SubscribeOptions{MaxInFlight: 1, Timeout: -1}, func(ctx context.Context, d *eventbus.Delivery) error {
		if number(d) < 3 {
			return nil
		}
		return s.wait(ctx, 24*time.Hour)
	})
	s.subscribe("audit", eventbus.SubscribeOptions{}, func(context.Context, *eventbus.Delivery) error { return nil })
	pauser, err := backend.PauserOf(b)
	require.NoError(t, err)
	require.NoError(t, pauser.Pause(t.Context(), ordersTopic, "audit", backend.Pause{By: "ann", Why: "the ledger moves to its new disk"}))
	_, err = bus.Subscribe(t.Context(), parcelsTopic, eventbus.SubscribeOptions{Group: "tracking"}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
	return s
}

// kept is a backend that its owner closes.
type kept struct{ backend.Backend }

func (kept) Close() error { return nil }

func (k kept) Unwrap() backend.Backend { return k.Backend }

func (s *shop) subscribe(group string, o eventbus.SubscribeOptions, h eventbus.Handler) {
	s.t.Helper()
	o.Group = group
	_, err := s.bus.Subscribe(s.t.Context(), ordersTopic, o, h)
	require.NoError(s.t, err)
}

func (s *shop) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.closed:
		return context.Canceled
	case <-ctx.Done():
		return ctx.Err()
	}
}

// number returns the number of an order.
func number(d *eventbus.Delivery) (n int) {
	_, _ = fmt.Sscanf(d.Subject, "order-%d", &n)
	return n
}

// bill fails for some orders, each in its own way.
func (s *shop) bill(_ context.Context, d *eventbus.Delivery) error {
	if s.mended.Load() {
		s.charged.Store(d.Subject, string(d.Payload))
		return nil
	}
	switch number(d) % 25 {
	case 7:
		return eventbus.Permanent(fmt.Errorf("charge %s: %w", d.Key, errDeclined))
	case 11, 19:
		return fmt.Errorf("charge %s: %w", d.Key, errSilent)
	case 23:
		s.rates["EUR"] = 1 // a mistake: nobody has made the map
	}
	return nil
}

var (
	customers = []string{"ada", "grace", "edsger", "barbara", "tony", "leslie", "niklaus"}
	articles  = []struct {
		name  string
		cents int
	}{{"three apples", 240}, {"a loaf of rye bread", 420}, {"green tea, 100 g", 890}, {"a bag of flour", 180}, {"olive oil, 0.5 l", 1150}}
)

// order publishes so many orders.
func (s *shop) order(n int) {
	s.t.Helper()
	events := make([]*eventbus.Event, n)
	for i := range events {
		customer, article := customers[s.orders%len(customers)], articles[s.orders%len(articles)]
		events[i] = &eventbus.Event{
			Type: "order.placed", Subject: fmt.Sprintf("order-%d", s.orders), Key: "customer-" + customer, ContentType: "application/json",
			Headers: eventbus.Headers{{Name: "traceparent", Value: fmt.Sprintf("00-4bf92f3577b34da6a3ce929d%08x-00f067aa0ba902b7-01", s.orders)}, {Name: "region", Value: "eu-central"}},
			Payload: fmt.Appendf(nil, `{"order":%d,"customer":%q,"items":[{"article":%q,"quantity":%d}],"total":{"currency":"EUR","cents":%d}}`,
				s.orders, customer, article.name, 1+s.orders%3, (1+s.orders%3)*article.cents),
		}
		s.orders++
	}
	require.NoError(s.t, s.bus.Publish(s.t.Context(), ordersTopic, events...))
}

// stock publishes events without a group, in several forms and for later, and events of a topic with
// partitions.
func (s *shop) stock() {
	s.t.Helper()
	require.NoError(s.t, s.bus.PublishIn(s.t.Context(), productsTopic, time.Hour, &eventbus.Event{ID: "price-rise", Type: "product.changed", Payload: []byte(`{"name":"green tea","price":{"cents":990}}`)}))
	require.NoError(s.t, s.bus.Recur(s.t.Context(), eventbus.Recurring{
		ID: "inventory", Topic: productsTopic, Cron: "0 6 * * *", Zone: "Europe/Berlin", Event: eventbus.Event{Type: "inventory.due"},
	}))
	require.NoError(s.t, s.bus.Publish(s.t.Context(), productsTopic,
		&eventbus.Event{ID: "as-json", Type: "product.changed", ContentType: "application/json", Payload: []byte(`{"name":"green tea","price":{"cents":890}}`)},
		&eventbus.Event{ID: "as-text", Type: "product.described", ContentType: "text/plain", Payload: []byte("Green tea from Uji,\nfirst flush.")},
		&eventbus.Event{ID: "as-binary", Type: "product.pictured", ContentType: "image/png", Payload: []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")},
		&eventbus.Event{ID: "empty", Type: "product.removed"},
	))
	for i := range 40 {
		require.NoError(s.t, s.bus.Publish(s.t.Context(), parcelsTopic, &eventbus.Event{Type: "parcel.sent", Key: fmt.Sprint("parcel-", i), Payload: []byte(`{"carrier":"post"}`)}))
	}
}

// settled waits until billing has made n dead letters.
func (s *shop) settled(n int) {
	s.t.Helper()
	for limit := time.Now().Add(patience); ; {
		found, err := backend.Read(s.t.Context(), s.bus.Backend(), lettersTopic, eventbus.StartEarliest, n+1)
		if err == nil && len(found) >= n {
			require.Len(s.t, found, n)
			return
		}
		require.True(s.t, time.Now().Before(limit), "%d dead letters of %d: %v", len(found), n, err)
		time.Sleep(10 * time.Millisecond)
	}
}

// stored returns how many events a topic has.
func (s *shop) stored(topic string) int {
	s.t.Helper()
	found, err := backend.Read(s.t.Context(), s.bus.Backend(), topic, eventbus.StartEarliest, 1000)
	require.NoError(s.t, err)
	return len(found)
}

// groups returns the groups of the orders.
func (s *shop) groups() []string {
	s.t.Helper()
	admin, ok := backend.As[backend.Admin](s.bus.Backend())
	require.True(s.t, ok)
	names, err := admin.Groups(s.t.Context(), ordersTopic)
	require.NoError(s.t, err)
	return names
}
