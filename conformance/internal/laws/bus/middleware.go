package bus

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"slices"
	"strconv"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/store"
)

// middlewareLaws are about middleware, from publishing to settlement.
var middlewareLaws = []law.Law{
	{
		ID: "B.W01", Name: "dedupe-after-success", Promise: "Dedupe marks an event only after its handler has succeeded: a failed event runs again, and a second event with its ID is discarded and reported",
		Engine: true, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(dedupeAfterSuccess),
	},
	{
		ID: "B.W02", Name: "envelope-round-trip", Promise: "an event that is compressed, encrypted, checked in and signed reaches its handler as published, and the broker never sees its payload",
		Engine: true, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			b := openSealed(e)
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
			es := e.PublishEvents(secretEvents()...)
			e.AwaitDone(len(es), "g")
			e.Settled("g")
			sameEvents(e, "g", es, func(d *eventbus.Delivery) string { return d.ID })
			b.check(e, len(es))
		}),
	},
	{
		ID: "B.W03", Name: "envelope-dead-letter", Promise: "a sealed event stays sealed as a dead letter, and a handler of the dead-letter topic sees it as it was published",
		Engine: true, Faults: []string{"dead-letters-lost"},
		Test: buslaw.On(func(e *buslaw.Env) {
			b := openSealed(e)
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{}, func(context.Context, *eventbus.Delivery) error {
				return eventbus.Permanent(buslaw.ErrBroken)
			})
			es := e.PublishEvents(secretEvents()...)
			e.AwaitDone(len(es), "dead")
			e.Settled("g")
			sameEvents(e, "dead", es, func(d *eventbus.Delivery) string {
				dead, _ := eventbus.DeadLetterOf(&d.Event)
				return dead.ID
			})
			b.check(e, 2*len(es))
		}),
	},
}

func dedupeAfterSuccess(e *buslaw.Env) {
	const n = 5
	dedupe := middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{
		ID: func(d *eventbus.Delivery) string { return d.Headers.Get("request") },
	})
	e.Open(eventbus.Options{Middleware: []eventbus.Middleware{dedupe}}, nil)
	var mu sync.Mutex
	failed := map[string]bool{}
	e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		request := d.Headers.Get("request")
		if again := failed[request]; !again {
			failed[request] = true
			return buslaw.ErrBroken
		}
		return nil
	})
	es := buslaw.Events(2 * n)
	for i, ev := range es { // the second half of the events has the same "request" headers as the first half
		ev.Headers = eventbus.Headers{{Name: "request", Value: strconv.Itoa(i % n)}}
	}
	e.PublishEvents(es[:n]...)
	e.AwaitDone(n, "g")
	e.PublishEvents(es[n:]...)
	buslaw.AwaitObserved[discarded](e, n)
	e.Settled("g")
	for _, h := range e.Recorder.All("g") {
		if slices.ContainsFunc(es[n:], func(ev *eventbus.Event) bool { return ev.ID == h.Delivery.ID }) {
			e.Failf("%s ran, want it discarded: its request was handled before", h.Delivery.ID)
		}
	}
}

// secret is part of the payload of every event in the laws about envelopes.
const secret = "a secret text"

func secretEvents() []*eventbus.Event {
	return []*eventbus.Event{
		{ID: "small", Type: "t", Payload: []byte(secret)},
		{ID: "compressible", Subject: "s", ContentType: "text/plain", Payload: bytes.Repeat([]byte(secret), 1000)},
		{ID: "large", Key: "k", Headers: eventbus.Headers{{Name: "h", Value: "v"}}, Payload: noise(20_000)},
	}
}

// noise returns a payload of n bytes that cannot be compressed below half of its size.
func noise(n int) []byte {
	b := []byte(secret)
	for state := uint32(1); len(b) < n; {
		state = state*1664525 + 1013904223
		b = append(b, byte(state>>24))
	}
	return b
}

// openSealed opens the bus with an envelope that uses every step: it compresses, encrypts,
// moves large payloads to a store, and signs.
func openSealed(e *buslaw.Env) *payloadInspector {
	e.Helper()
	store, err := middleware.OpenFileStore(e.T.TempDir())
	e.Must(err)
	e.Cleanup(func() { _ = store.Close() })
	v, err := middleware.NewEnvelope(middleware.EnvelopeOptions{
		Compress:   &middleware.Compress{MinSize: 100},
		Encrypt:    &middleware.Encrypt{Key: "1", Keys: map[string]middleware.Key{"1": middleware.NewKey(bytes.Repeat([]byte{1}, 32))}},
		ClaimCheck: &middleware.ClaimCheck{Store: store, MinSize: 10_000},
		Sign:       &middleware.Sign{Key: "2", Private: middleware.NewKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)))},
	})
	e.Must(err)
	var o eventbus.Options
	v.Install(&o)
	b := &payloadInspector{}
	e.Open(o, func(inner backend.Backend) backend.Backend {
		b.Backend = inner
		return b
	})
	return b
}

// payloadInspector is a backend that checks published messages for unsealed payloads.
type payloadInspector struct {
	backend.Backend

	mu     sync.Mutex
	stored int
	open   []string // IDs of the messages that have the secret or more than 10,000 bytes
}

func (r *payloadInspector) Unwrap() backend.Backend { return r.Backend }

func (r *payloadInspector) Publish(ctx context.Context, msgs []*backend.Message) error {
	r.mu.Lock()
	for _, m := range msgs {
		r.stored++
		if bytes.Contains(m.Payload, []byte(secret)) || len(m.Payload) > 10_000 {
			r.open = append(r.open, m.ID)
		}
	}
	r.mu.Unlock()
	return r.Backend.Publish(ctx, msgs)
}

// check expects that at least n messages were published, all of them sealed.
func (r *payloadInspector) check(e *buslaw.Env, n int) {
	e.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored < n || len(r.open) > 0 {
		e.Failf("the broker got %d messages, and the payloads of %q, want %d messages and no payload", r.stored, r.open, n)
	}
}

// sameEvents expects that each run under name got an event that equals the published event.
// id returns the ID under which the event of a delivery was published.
func sameEvents(e *buslaw.Env, name string, want []*eventbus.Event, id func(*eventbus.Delivery) string) {
	e.Helper()
	for _, h := range e.Recorder.All(name) {
		got := h.Delivery
		i := slices.IndexFunc(want, func(w *eventbus.Event) bool { return w.ID == id(&got) })
		if i < 0 {
			e.Failf("got event %q, which was not published", id(&got))
		}
		w := want[i]
		if !bytes.Equal(got.Payload, w.Payload) || got.Headers.Get("h") != w.Headers.Get("h") || got.Key != w.Key ||
			got.Type != w.Type || got.Subject != w.Subject || got.ContentType != w.ContentType || !got.Time.Equal(w.Time) {
			e.Failf("got event %q with %d bytes, attributes %q %q %q %q %v and headers %v, want it as it was published",
				w.ID, len(got.Payload), got.Key, got.Type, got.Subject, got.ContentType, got.Time, got.Headers)
		}
	}
}
