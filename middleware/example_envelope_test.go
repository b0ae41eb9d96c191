package middleware_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/middleware"
)

// All four steps. The handler sees the event as it was published.
func ExampleEnvelope() {
	folder, err := os.MkdirTemp("", "payloads")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := middleware.OpenFileStore(folder)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	secret := make([]byte, 32) // from a vault, in a program
	_, _ = rand.Read(secret)

	envelope, err := middleware.NewEnvelope(middleware.EnvelopeOptions{
		Compress:   &middleware.Compress{},
		Encrypt:    &middleware.Encrypt{Key: "2026-01", Keys: map[string]middleware.Key{"2026-01": middleware.NewKey(secret)}},
		ClaimCheck: &middleware.ClaimCheck{Store: store},
		Sign:       &middleware.Sign{Key: "shop", Private: middleware.NewKey(private)},
	})
	if err != nil {
		panic(err)
	}
	o := eventbus.Options{Service: "shop"}
	envelope.Install(&o)
	handled(o, func(_ context.Context, d *eventbus.Delivery) error {
		fmt.Println(d.ID, len(d.Payload))
		return nil
	}, &eventbus.Event{ID: "1", Payload: bytes.Repeat([]byte("three apples "), 500_000)})
	// Output: 1 6500000
}

// A program that reads a topic without a group opens the events itself.
func ExampleEnvelope_Open() {
	ctx := context.Background()
	envelope, err := middleware.NewEnvelope(middleware.EnvelopeOptions{Compress: &middleware.Compress{}})
	if err != nil {
		panic(err)
	}
	var o eventbus.Options
	envelope.Install(&o)
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(ctx, "orders", &eventbus.Event{Payload: bytes.Repeat([]byte("apple "), 1000)}); err != nil {
		panic(err)
	}
	messages, err := backend.Read(ctx, bus.Backend(), "orders", "", 10)
	if err != nil {
		panic(err)
	}
	for _, m := range messages {
		e := eventbus.EventOf(&m)
		stored := len(e.Payload)
		if err := envelope.Open(ctx, &e); err != nil {
			panic(err)
		}
		fmt.Println(stored < 100, len(e.Payload))
	}
	_ = bus.Shutdown(ctx)
	// Output: true 6000
}

// A daily job deletes the payloads that no event and no dead letter needs anymore.
func ExampleFileStore_DeleteOlder() {
	folder, err := os.MkdirTemp("", "payloads")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := middleware.OpenFileStore(folder)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	const retention, deadLetters = 7 * 24 * time.Hour, 90 * 24 * time.Hour
	fmt.Println(store.DeleteOlder(context.Background(), retention+deadLetters))
	// Output: 0 <nil>
}
