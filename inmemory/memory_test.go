package inmemory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// Settled and deleted messages free their memory.
func TestMemoryComesBack(t *testing.T) {
	b := open(t, inmemory.Options{MaxBytes: 64 << 20})
	src := attach(t, b, "billing")
	payload := make([]byte, 64<<10)
	for range 10 {
		for range 500 {
			if err := b.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: payload}}); err != nil {
				t.Fatal(err)
			}
		}
		for left := 500; left > 0; {
			ds := receive(t, src, left)
			left -= len(ds)
			src.Ack(t.Context(), backend.Lend(ds))
		}
	}
	if n := testproc.HeapInUse(); n > 16<<20 {
		t.Errorf("%d bytes are in use, with nothing stored", n)
	}
}

// filled attaches to a topic and publishes to it.
func filled(t *testing.T, b *inmemory.Backend, topic string, messages int, payload []byte) backend.Source {
	t.Helper()
	src, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: "billing", Lease: time.Minute, MaxInFlight: messages})
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if err := b.Publish(t.Context(), []*backend.Message{{Topic: topic, Payload: payload}}); err != nil {
			t.Fatal(err)
		}
	}
	return src
}

// keptAtMost compares a topic's memory with a bound.
func keptAtMost(t *testing.T, limit, bytes int) {
	t.Helper()
	if t.Logf("a topic keeps %d bytes", bytes); bytes > limit {
		t.Errorf("that is more than %d", limit)
	}
}

// An idle topic keeps little memory after Maintain.
func TestIdleTopicsKeepLittle(t *testing.T) {
	const topics, messages = 200, 64
	b := open(t, inmemory.Options{})
	payload := make([]byte, 1<<10)
	before := testproc.HeapInUse()
	for i := range topics {
		topic := fmt.Sprint("topic", i)
		src := filled(t, b, topic, messages, payload)
		if err := src.Ack(t.Context(), backend.Lend(receive(t, src, messages))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := src.Receive(ctx, messages, 0); !errors.Is(err, context.Canceled) { // takes back the lent memory
			t.Fatal(err)
		}
		if _, err := b.Maintain(t.Context(), topic, "billing"); err != nil {
			t.Fatal(err)
		}
	}
	keptAtMost(t, 24<<10, (testproc.HeapInUse()-before)/topics)
	runtime.KeepAlive(b)
}

// A topic with one message left keeps little memory of the settled ones after Maintain.
func TestWhatWasSettledKeepsLittle(t *testing.T) {
	const topics, messages = 100, 120
	b := open(t, inmemory.Options{})
	payload := make([]byte, 4<<10)
	before := testproc.HeapInUse()
	for i := range topics {
		topic := fmt.Sprint("topic", i)
		src := filled(t, b, topic, messages, payload)
		if err := src.Ack(t.Context(), backend.Lend(receive(t, src, messages)[:messages-1])); err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Maintain(t.Context(), topic, "billing"); err != nil {
			t.Fatal(err)
		}
	}
	keptAtMost(t, 64<<10, (testproc.HeapInUse()-before)/topics)
	runtime.KeepAlive(b)
}

// Topics with little traffic keep little memory, even beside a busy one.
func TestSlowTopicsKeepLittle(t *testing.T) {
	const topics, messages = 200, 128
	b := open(t, inmemory.Options{})
	src := attach(t, b, "billing")
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = &backend.Message{Topic: "orders", ID: strings.Repeat("x", 300), Payload: make([]byte, 500)}
	}
	before := testproc.HeapInUse()
	for i := range topics {
		if err := b.Publish(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		if err := src.Ack(t.Context(), backend.Lend(receive(t, src, messages))); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), []*backend.Message{{Topic: fmt.Sprint("slow", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	keptAtMost(t, 24<<10, (testproc.HeapInUse()-before)/topics)
	runtime.KeepAlive(b)
}

// A caller that keeps a part of one message keeps at most one block of shared memory of
// each kind alive (package slab).
func TestWhatIsKeptKeepsLittle(t *testing.T) {
	const rounds, messages, size = 200, 128, 4 << 10
	text := strings.Repeat("x", size)
	for _, kind := range []struct {
		name string
		m    backend.Message
		part func(d *backend.Delivery) any
	}{
		{"payload", backend.Message{Payload: []byte(text)}, func(d *backend.Delivery) any { return d.Payload }},
		{"text", backend.Message{ID: "1", Headers: backend.Headers{{Name: "n", Value: text}}}, func(d *backend.Delivery) any { return d.ID }},
		{"headers", backend.Message{Headers: make(backend.Headers, size/32)}, func(d *backend.Delivery) any { return d.Headers }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			b := open(t, inmemory.Options{})
			src := attach(t, b, "billing")
			msgs := make([]*backend.Message, messages)
			for i := range msgs {
				m := kind.m
				m.Topic = "orders"
				msgs[i] = &m
			}
			before := testproc.HeapInUse()
			var kept []any
			for range rounds {
				if err := b.Publish(t.Context(), msgs); err != nil {
					t.Fatal(err)
				}
				ds := receive(t, src, messages)
				kept = append(kept, kind.part(&ds[0]))
				if err := src.Ack(t.Context(), backend.Lend(ds)); err != nil {
					t.Fatal(err)
				}
			}
			if each := (testproc.HeapInUse() - before) / len(kept); each > 80<<10 {
				t.Errorf("%d bytes are alive for each that is kept", each)
			}
			runtime.KeepAlive(kept)
			runtime.KeepAlive(b)
		})
	}
}

// IDs of Once do not pile up, neither without Maintain nor without publishing.
func TestOnceKeepsLittle(t *testing.T) {
	for _, maintained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := open(t, inmemory.Options{OnceWindow: time.Minute})
			src := attach(t, b, "billing")
			once := func(id string) {
				m := &backend.Message{Topic: "orders", ID: id + strings.Repeat("x", 1000), Once: true}
				if err := b.Publish(t.Context(), []*backend.Message{m}); err != nil {
					t.Fatal(err)
				}
				if err := src.Ack(t.Context(), backend.Lend(receive(t, src, 1))); err != nil {
					t.Fatal(err)
				}
			}
			before := testproc.HeapInUse()
			for i := range 5000 {
				once(fmt.Sprint(i))
			}
			for i := range 2 {
				time.Sleep(time.Minute)
				if maintained {
					b.Maintain(t.Context(), "orders", "billing")
				} else {
					once(fmt.Sprint("again", i))
				}
			}
			keptAtMost(t, 256<<10, testproc.HeapInUse()-before)
			runtime.KeepAlive(b)
		})
	}
}
