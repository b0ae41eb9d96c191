package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

func TestEnvelopeRoundTripsInEveryCombination(t *testing.T) {
	for combination := range 16 {
		t.Run(fmt.Sprintf("%04b", combination), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := envelope(t, steps(t, combination))
				bus := sealing(t, v)
				handled := handle(t, bus, "orders", "", nil)
				events := append(published(), arbitrary(uint64(combination), 30)...)
				before := append(published(), arbitrary(uint64(combination), 30)...)
				receipts, err := bus.PublishReceipts(t.Context(), "orders", events...)
				require.NoError(t, err)
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.Equal(t, before, events, "the caller's events are unchanged")

				require.Len(t, *handled, len(events))
				byID := map[string]eventbus.Event{}
				for _, e := range *handled {
					byID[e.ID] = e
				}
				for i, e := range events {
					e := *e
					e.ID, e.Time, e.Source = receipts[i].ID, receipts[i].Time, cmp.Or(e.Source, "shop")
					require.NotEmpty(t, receipts[i].Position)
					require.Equal(t, receipts[i].Position, byID[e.ID].Position)
					requireSame(t, &e, byID[e.ID])

					stored := bus.Published("orders")[i]
					if combination&2 != 0 && len(e.Payload) > 0 {
						require.NotContains(t, string(stored.Payload), "secret", "encrypted")
					}
					if combination == 1 {
						require.LessOrEqual(t, len(stored.Payload), len(e.Payload), "only payloads that get smaller")
						require.True(t, i != 2 || len(stored.Payload) < len(e.Payload), "this one gets smaller")
					}
					if combination == 4 && len(e.Payload) < 1000 {
						require.Equal(t, string(e.Payload), string(stored.Payload), "small payloads are in the event")
					}
					if combination&4 != 0 {
						require.LessOrEqual(t, len(stored.Payload), 1000, "large payloads are in the store")
					}
					headers := slices.Clone(stored.Headers)
					opened := stored
					require.NoError(t, v.Open(t.Context(), &opened))
					requireSame(t, &e, opened)
					require.Equal(t, headers, stored.Headers, "other copies of the event keep their headers")
				}
			})
		})
	}
}

// Tests of a program may share an envelope.
func TestEnvelopeWorksInSeveralBubbles(t *testing.T) {
	v := envelope(t, steps(t, 15))
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			bus := sealing(t, v)
			handled := handle(t, bus, "orders", "", nil)
			require.NoError(t, bus.Publish(t.Context(), "orders", published()...))
			require.NoError(t, bus.WaitIdle(t.Context()))
			require.Len(t, *handled, len(published()))
		})
	}
}

func TestEnvelopeCompressesAndChecksLargePayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := steps(t, 15)
		bus := sealing(t, envelope(t, o))
		handled := handle(t, bus, "orders", "", nil)
		large := make([]byte, 10<<20) // beyond eventbus.MaxPayload
		_, _ = rand.NewChaCha8([32]byte{}).Read(large)
		require.NoError(t, bus.Publish(t.Context(), "orders",
			&eventbus.Event{Payload: large}, &eventbus.Event{Payload: bytes.Repeat([]byte("a"), 10<<20)}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, large, (*handled)[0].Payload)
		require.Len(t, (*handled)[1].Payload, 10<<20)

		stored := bus.Published("orders")
		require.Empty(t, stored[0].Payload)
		require.NotEmpty(t, stored[0].Headers.Get("envelope-claim"))
		require.Equal(t, "zstd", stored[1].Headers.Get("content-encoding"))

		err := bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{Payload: make([]byte, 16<<20+1)})
		require.ErrorIs(t, err, eventbus.ErrTooLarge)
		require.EqualError(t, err, "eventbus: events[1].Payload has 16777217 bytes, more than EnvelopeOptions.MaxPayload, 16777216")
		require.Len(t, bus.Published("orders"), 2, "nothing was stored")
	})
}

// A dead letter has another ID and topic than its original, and so does a dead letter of
// a dead letter. A redriven dead letter has its own ID again.
func TestEnvelopeOpensDeadLettersAndRedrivenEvents(t *testing.T) {
	for combination := range 16 {
		t.Run(fmt.Sprintf("%04b", combination), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := sealing(t, envelope(t, steps(t, combination)))
				first := handle(t, bus, "orders", "", fmt.Errorf("no"))
				second := handle(t, bus, "orders.dlq", "hopeless", fmt.Errorf("no again"))
				third := handle(t, bus, "hopeless", eventbus.DiscardDeadLetters, nil)
				e := published()[2]
				require.NoError(t, bus.Publish(t.Context(), "orders", e))
				require.NoError(t, bus.WaitIdle(t.Context()))

				require.Len(t, *first, 1)
				for topic, got := range map[string][]eventbus.Event{"orders.dlq": *second, "hopeless": *third} {
					require.Len(t, got, 1, topic)
					require.Equal(t, e.Payload, got[0].Payload, topic)
					require.Equal(t, "blue", got[0].Headers.Get("tenant"), topic)
					_, dead := eventbus.DeadLetterOf(&got[0])
					require.True(t, dead, topic)
					if combination&2 != 0 {
						require.NotContains(t, string(bus.Published(topic)[0].Payload), "secret", "%s: sealed as it was", topic)
					}
				}

				redriven := bus.Published("orders.dlq")[0]
				letter, _ := eventbus.DeadLetterOf(&redriven)
				redriven.ID = letter.ID
				var headers eventbus.Headers
				for _, h := range redriven.Headers {
					if !strings.HasPrefix(h.Name, "eventbus-") {
						headers = append(headers, h)
					}
				}
				redriven.Headers = headers
				again := handle(t, bus, "again", "", nil)
				require.NoError(t, bus.Publish(t.Context(), "again", &redriven))
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.Len(t, *again, 1)
				requireSame(t, e, (*again)[0])
			})
		})
	}
}

func TestEnvelopeForwardsOpenedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := sealing(t, envelope(t, steps(t, 15)))
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "forward"},
			func(ctx context.Context, d *eventbus.Delivery) error { return bus.Publish(ctx, "copies", &d.Event) })
		require.NoError(t, err)
		copies := handle(t, bus, "copies", "", nil)
		e := published()[2]
		require.NoError(t, bus.Publish(t.Context(), "orders", e))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, *copies, 1)
		requireSame(t, e, (*copies)[0])
	})
}

// Install puts the envelope nearest to the backend, so other middleware sees open events.
func TestEnvelopeIsInTheRightPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		correlate, stamp := middleware.Correlate()
		checked := 0
		o := eventbus.Options{
			Middleware: []eventbus.Middleware{correlate, middleware.Validate(nil, func(e *eventbus.Event) error {
				if checked++; string(e.Payload) != "secret" {
					return fmt.Errorf("not open")
				}
				return nil
			})},
			PublishMiddleware: []eventbus.PublishMiddleware{stamp},
		}
		options := steps(t, 15)
		options.Headers = []string{middleware.CausationID, middleware.CorrelationID}
		envelope(t, options).Install(&o)
		bus := eventbustest.NewWith(t, o)
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(ctx context.Context, _ *eventbus.Delivery) error {
				return bus.Publish(ctx, "bills", &eventbus.Event{Payload: []byte("secret")})
			})
		require.NoError(t, err)
		bills := handle(t, bus, "bills", "", nil)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o", Payload: []byte("secret")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 2, checked)
		require.Len(t, *bills, 1)
		require.Equal(t, "o", (*bills)[0].Headers.Get(middleware.CausationID))
	})
}

// The Source that Encrypt and Sign protect is the Service of the bus, even if the program
// sets it after Install.
func TestServiceMayBeSetAfterInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o eventbus.Options
		envelope(t, steps(t, 15)).Install(&o)
		o.Service = "late"
		bus := eventbustest.NewWith(t, o)
		handled := handle(t, bus, "orders", "", nil)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte("secret")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, *handled, 1)
		require.Equal(t, "late", (*handled)[0].Source)
	})
}

func TestEnvelopeLeavesSharedHeadersAlone(t *testing.T) {
	bus := sealing(t, envelope(t, steps(t, 15)))
	shared := make(eventbus.Headers, 1, 8)
	shared[0] = eventbus.Header{Name: "tenant", Value: "blue"}
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: shared}, &eventbus.Event{Headers: shared}))
	require.Equal(t, make(eventbus.Headers, 7), shared[:8][1:], "behind the slice's end")
}

func TestEnvelopeLeavesNilEventsToPublish(t *testing.T) {
	bus := sealing(t, envelope(t, steps(t, 15)))
	require.EqualError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, nil), "eventbus: events[1] is nil")
}

// An event with a header of the envelope, which is not sealed, must not be stored
// unprotected.
func TestEnvelopeRefusesItsHeaders(t *testing.T) {
	for _, combination := range []int{2, 8} {
		bus := sealing(t, envelope(t, steps(t, combination)))
		err := bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: "envelope-id", Value: "x"}}})
		require.EqualError(t, err, "eventbus: events[0].Headers[envelope-id] is reserved for middleware.Envelope")
		require.Empty(t, bus.Published("orders"))
	}
}

// An event that only looks sealed is refused, and not stored unprotected.
func TestSealedHeadersWithoutASeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for header, which := range map[string]int{"envelope-key": 2, "envelope-signature": 8} {
			bus := sealing(t, envelope(t, steps(t, which)))
			err := bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte("secret"), Headers: eventbus.Headers{{Name: header, Value: "2026 x"}}})
			require.ErrorContains(t, err, "seal events[0]: it looks sealed, but cannot be opened: ")
			require.Empty(t, bus.Published("orders"))
		}
	})
	for _, header := range []string{"envelope-id", "envelope-key", "envelope-claim", "envelope-signature"} {
		o := steps(t, 15)
		o.Headers = []string{header}
		_, err := middleware.NewEnvelope(o)
		require.ErrorContains(t, err, "EnvelopeOptions.Headers[0] is a header of the envelope")
	}
}

// MaxPayload bounds a received payload, whatever steps were applied to it.
func TestMaxPayloadBoundsReceivedEvents(t *testing.T) {
	noise := make([]byte, 1500) // cannot be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for combination := range 16 {
		o := steps(t, combination)
		bus := sealing(t, envelope(t, o))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: noise}))
		e := bus.Published("orders")[0]
		o.MaxPayload = 1000
		require.ErrorIs(t, envelope(t, o).Open(t.Context(), &e), eventbus.ErrTooLarge, "combination %d", combination)
		o.MaxPayload = 1500
		require.NoError(t, envelope(t, o).Open(t.Context(), &e), "combination %d", combination)
	}
}

// A letter of a letter that is redriven is the first letter again: a handler of its topic
// can open it, its event knows its group, and the rule of the event does not apply.
func TestRedrivenLetterOfALetterIsTheFirstLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := sealing(t, envelope(t, steps(t, 10)))
		handle(t, bus, "orders", "", errors.New("no"))
		repaired := false
		got := make(chan eventbus.Event, 1)
		_, err := bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "repair", DeadLetter: "orders.lost"},
			func(_ context.Context, d *eventbus.Delivery) error {
				if !repaired {
					return eventbus.Permanent(errors.New("not yet"))
				}
				got <- d.Event
				return nil
			})
		require.NoError(t, err)
		rule := &eventbus.RetryRule{MaxAttempts: 3}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "e-1", Retry: rule, Payload: []byte("x")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		repaired = true
		lost, err := deadletter.Open(bus.Backend(), "orders.lost")
		require.NoError(t, err)
		report, err := lost.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Redriven)
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, got, 1, "the envelope refused it")
		e := <-got
		why, dead := eventbus.DeadLetterOf(&e)
		require.True(t, dead)
		require.Equal(t, []string{"e-1", "g", "orders"}, []string{why.ID, why.Group, why.Topic})
		require.Nil(t, e.Retry)
	})
}

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

func TestNewEnvelopeRefuses(t *testing.T) {
	keys := map[string]middleware.Key{"a": aesKey}
	private := middleware.NewKey(signingKey)
	for want, o := range map[string]middleware.EnvelopeOptions{
		"MaxPayload is negative":      {MaxPayload: -1},
		"ClaimCheck.Store is nil":     {ClaimCheck: &middleware.ClaimCheck{}},
		"Encrypt.Keys is empty":       {Encrypt: &middleware.Encrypt{Key: "a"}},
		"Encrypt.Keys[a] has 5 bytes": {Encrypt: &middleware.Encrypt{Keys: map[string]middleware.Key{"a": middleware.NewKey([]byte("short"))}}},
		"Encrypt.Keys has a key ID":   {Encrypt: &middleware.Encrypt{Keys: map[string]middleware.Key{"": aesKey}}},
		"Encrypt.Key is \"b\"":        {Encrypt: &middleware.Encrypt{Key: "b", Keys: keys}},
		"Sign.Public is empty":        {Sign: &middleware.Sign{}},
		"Sign.Public[a] has 3 bytes":  {Sign: &middleware.Sign{Public: map[string]ed25519.PublicKey{"a": make([]byte, 3)}}},
		"Sign.Public has the key ID":  {Sign: &middleware.Sign{Public: map[string]ed25519.PublicKey{"a b": make([]byte, 32)}}},
		"Sign.Public[a] is not":       {Sign: &middleware.Sign{Key: "a", Private: private, Public: map[string]ed25519.PublicKey{"a": make([]byte, 32)}}},
		"Sign.Key is empty, but":      {Sign: &middleware.Sign{Private: private}},
		"Sign.Private has 3 bytes":    {Sign: &middleware.Sign{Key: "a", Private: middleware.NewKey([]byte("abc"))}},
	} {
		_, err := middleware.NewEnvelope(o)
		_, ok := errors.AsType[*eventbus.FieldError](err)
		require.True(t, ok, "%s: got %v, want a FieldError", want, err)
		require.ErrorContains(t, err, "eventbus: EnvelopeOptions."+want)
	}
}

// A bus may have sealed topics and others.
func TestEnvelopeOfSomeTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := steps(t, 11)
		o.Topics = func(topic string) bool { return topic == "orders" }
		v := envelope(t, o)
		bus := sealing(t, v)
		e := published()[2]
		require.NoError(t, bus.Publish(t.Context(), "plain", published()[2]))
		require.Equal(t, string(e.Payload), string(bus.Published("plain")[0].Payload), "published as it is")

		plain := handle(t, bus, "plain", "", nil)
		orders := handle(t, bus, "orders", "", errBroken)
		dead := handle(t, bus, "orders.dlq", "hopeless", nil)
		require.NoError(t, bus.Publish(t.Context(), "plain", published()[2]))
		require.NoError(t, bus.Publish(t.Context(), "orders", published()[2]))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.NotContains(t, string(bus.Published("orders")[0].Payload), "secret")
		for topic, got := range map[string][]eventbus.Event{"plain": *plain, "orders": *orders, "orders.dlq": *dead} {
			require.NotEmpty(t, got, topic)
			require.Equal(t, string(e.Payload), string(got[0].Payload), topic)
		}

		handled, letter := receive(t, v, *e)
		require.Empty(t, handled, "events of a sealed topic must be sealed")
		require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
	})
}

func TestProgramsThatOnlyOpenDoNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public := map[string]ed25519.PublicKey{"till": signingKey.Public().(ed25519.PublicKey)}
		reads := middleware.EnvelopeOptions{
			Encrypt: &middleware.Encrypt{Keys: map[string]middleware.Key{"2026": aesKey}},
			Sign:    &middleware.Sign{Public: public},
		}
		e := sealed(t, envelope(t, steps(t, 10)), eventbus.Event{ID: "1", Payload: []byte("pay 1")})
		handled, _ := receive(t, envelope(t, reads), e)
		require.Len(t, handled, 1)

		for step, o := range map[string]middleware.EnvelopeOptions{"Encrypt": {Encrypt: reads.Encrypt}, "Sign": {Sign: reads.Sign}} {
			err := sealing(t, envelope(t, o)).Publish(t.Context(), "orders", &eventbus.Event{})
			require.EqualError(t, err, "eventbus: events[0].Payload cannot be sealed, because EnvelopeOptions."+step+".Key is empty")
		}
	})
}
