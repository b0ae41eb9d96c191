package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

var (
	aesKey     = middleware.NewKey(bytes.Repeat([]byte{7}, 32))
	signingKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
)

// steps returns options with the steps whose bits are set in combination, 0 to 15.
func steps(t *testing.T, combination int) (o middleware.EnvelopeOptions) {
	if combination&1 != 0 {
		o.Compress = &middleware.Compress{MinSize: 100}
	}
	if combination&2 != 0 {
		o.Encrypt = &middleware.Encrypt{Key: "2026", Keys: map[string]middleware.Key{"2026": aesKey}}
	}
	if combination&4 != 0 {
		o.ClaimCheck = &middleware.ClaimCheck{Store: fileStore(t), MinSize: 1000}
	}
	if combination&8 != 0 {
		o.Sign = &middleware.Sign{Key: "till", Private: middleware.NewKey(signingKey)}
	}
	return o
}

func fileStore(t *testing.T) *middleware.FileStore {
	t.Helper()
	s, err := middleware.OpenFileStore(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func envelope(t *testing.T, o middleware.EnvelopeOptions) *middleware.Envelope {
	t.Helper()
	v, err := middleware.NewEnvelope(o)
	require.NoError(t, err)
	return v
}

// sealing returns a bus with v.
func sealing(t *testing.T, v *middleware.Envelope) *eventbustest.Bus {
	t.Helper()
	o := eventbus.Options{Service: "shop"}
	v.Install(&o)
	return eventbustest.NewWith(t, o)
}

// handle subscribes to topic, and returns the list of the events that its handler gets.
// The handler fails for good with failure, unless that is nil.
func handle(t *testing.T, bus *eventbustest.Bus, topic, deadLetter string, failure error) *[]eventbus.Event {
	t.Helper()
	got := &[]eventbus.Event{}
	_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: deadLetter},
		func(_ context.Context, d *eventbus.Delivery) error {
			*got = append(*got, d.Event)
			return eventbus.Permanent(failure)
		})
	require.NoError(t, err)
	return got
}

// published are events of all kinds.
func published() []*eventbus.Event {
	noise := make([]byte, 5000)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	return []*eventbus.Event{
		{},
		{Payload: []byte("secret")},
		{Payload: bytes.Repeat([]byte("secret "), 10_000), Headers: eventbus.Headers{{Name: "tenant", Value: "blue"}}},
		{Payload: noise},
		{
			ID: "an ID", Type: "order.placed", Source: "till", Subject: "o-1", ContentType: "text/plain", Key: "k",
			Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), Payload: []byte("secret"),
		},
		{Payload: bytes.Repeat([]byte("secret "), 200), Headers: eventbus.Headers{{Name: "content-encoding", Value: "identity"}}},
	}
}

// arbitrary returns n events with random attributes, headers and payloads.
func arbitrary(seed uint64, n int) (events []*eventbus.Event) {
	random := rand.New(rand.NewPCG(seed, 1))
	text := func() string {
		letters := []rune("abc /=%\"';:,äß語🙂")
		runes := make([]rune, random.IntN(20))
		for i := range runes {
			runes[i] = letters[random.IntN(len(letters))]
		}
		return string(runes)
	}
	for range n {
		e := &eventbus.Event{
			ID: text(), Type: text(), Source: text(), Subject: text(), ContentType: text(), Key: text(),
			Time: time.Unix(random.Int64N(4e9), random.Int64N(1e9)), Payload: make([]byte, random.IntN(3000)),
		}
		e.ID += fmt.Sprint(len(events)) // the test finds events by ID
		alphabet := 1 + random.IntN(256)
		for i := range e.Payload {
			e.Payload[i] = byte(random.IntN(alphabet))
		}
		for i := range random.IntN(4) {
			e.Headers.Set(fmt.Sprint("h", i), text())
		}
		events = append(events, e)
	}
	return events
}

// requireSame compares events without their positions. An empty ID, Source or Time of want
// equals any.
func requireSame(t *testing.T, want *eventbus.Event, got eventbus.Event) {
	t.Helper()
	w := *want
	w.Position, got.Position = "", ""
	w.ID, w.Source = cmp.Or(w.ID, got.ID), cmp.Or(w.Source, got.Source)
	if w.Time.IsZero() {
		w.Time = got.Time
	}
	require.WithinDuration(t, w.Time, got.Time, 0)
	w.Time, got.Time = time.Time{}, time.Time{}
	if len(w.Headers) == 0 {
		w.Headers, got.Headers = nil, got.Headers[:len(got.Headers):len(got.Headers)]
		require.Empty(t, got.Headers, "only the headers of the program")
		got.Headers = nil
	}
	if len(w.Payload) == 0 {
		w.Payload = nil
		require.Empty(t, got.Payload)
		got.Payload = nil
	}
	require.Equal(t, w, got)
}
