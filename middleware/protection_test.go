package middleware_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

// sealed returns the stored form of e.
func sealed(t *testing.T, v *middleware.Envelope, e eventbus.Event) eventbus.Event {
	t.Helper()
	bus := sealing(t, v)
	require.NoError(t, bus.Publish(t.Context(), "orders", &e))
	stored := bus.Published("orders")[0]
	stored.Position = ""
	return stored
}

// receive stores e as it is, and returns the handled events and the reason of the dead
// letter, if there is one.
func receive(t *testing.T, v *middleware.Envelope, e eventbus.Event) ([]eventbus.Event, eventbus.DeadLetter) {
	t.Helper()
	var o eventbus.Options
	v.Install(&o)
	o.PublishMiddleware = nil
	bus := eventbustest.NewWith(t, o)
	handled := handle(t, bus, "orders", "", nil)
	require.NoError(t, bus.Publish(t.Context(), "orders", &e))
	require.NoError(t, bus.WaitIdle(t.Context()))
	var letter eventbus.DeadLetter
	for _, dead := range bus.Published("orders.dlq") {
		letter, _ = eventbus.DeadLetterOf(&dead)
		require.Equal(t, e.Payload, dead.Payload, "the dead letter is sealed as the event was")
	}
	return *handled, letter
}

// changes are refused by Encrypt and by Sign.
var changes = []struct {
	name   string
	change func(e *eventbus.Event)
}{
	{"payload", func(e *eventbus.Event) { e.Payload = append(bytes.Clone(e.Payload[:len(e.Payload)-1]), 'x') }},
	{"no payload", func(e *eventbus.Event) { e.Payload = nil }},
	{"ID", func(e *eventbus.Event) { e.ID = "2" }},
	{"ID in both places", func(e *eventbus.Event) { e.ID = "2"; e.Headers.Set("envelope-id", "2") }},
	{"no ID", func(e *eventbus.Event) { e.Headers.Del("envelope-id") }},
	{"Type", func(e *eventbus.Event) { e.Type = "u" }},
	{"Source", func(e *eventbus.Event) { e.Source = "u" }},
	{"Subject", func(e *eventbus.Event) { e.Subject = "" }},
	{"ContentType", func(e *eventbus.Event) { e.ContentType = "u" }},
	{"Key", func(e *eventbus.Event) { e.Key = "u" }},
	{"Key and Type moved", func(e *eventbus.Event) { e.Key, e.Type = e.Key+e.Type, "" }},
	{"Time", func(e *eventbus.Event) { e.Time = time.Unix(1, 3) }},
	{"a named header", func(e *eventbus.Event) { e.Headers.Set("tenant", "red") }},
	{"a named header removed", func(e *eventbus.Event) { e.Headers.Del("tenant") }},
	{"a named header added", func(e *eventbus.Event) { e.Headers.Set("absent", "") }},
	{"a named header renamed", func(e *eventbus.Event) {
		e.Headers.Del("tenant")
		e.Headers.Set("absent", "blue")
	}},
	{"content-encoding", func(e *eventbus.Event) { e.Headers.Set("content-encoding", "zstd") }},
	{"unprotected", func(e *eventbus.Event) {
		e.Headers.Del("envelope-key")
		e.Headers.Del("envelope-signature")
	}},
	{"no signature text", func(e *eventbus.Event) {
		e.Headers.Del("envelope-key")
		e.Headers.Set("envelope-signature", "till ???")
	}},
}

func TestChangedEventsAreNotHandled(t *testing.T) {
	original := eventbus.Event{
		ID: "1", Type: "t", Source: "s", Subject: "u", ContentType: "c", Key: "k", Time: time.Unix(1, 2),
		Headers: eventbus.Headers{{Name: "tenant", Value: "blue"}, {Name: "other", Value: "1"}}, Payload: []byte("pay 1"),
	}
	for step, combination := range map[string]int{"Encrypt": 2, "Sign": 8} {
		o := steps(t, combination)
		o.Headers = []string{"tenant", "absent"}
		v := envelope(t, o)
		for _, row := range changes {
			t.Run(step+"/"+row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := sealed(t, v, original)
					row.change(&e)
					handled, letter := receive(t, v, e)
					require.Empty(t, handled, "the handler must not see a changed event")
					require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
					require.NotContains(t, letter.Error, "pay 1")
				})
			})
		}
		t.Run(step+"/a header that is not named may change", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := sealed(t, v, original)
				e.Headers.Set("other", "2")
				handled, _ := receive(t, v, e)
				require.Len(t, handled, 1)
			})
		})
	}
}

// A payload of one event is not accepted as the payload of another.
func TestPayloadsCannotBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := envelope(t, steps(t, 2))
		one := sealed(t, v, eventbus.Event{ID: "1", Payload: []byte("pay 1")})
		two := sealed(t, v, eventbus.Event{ID: "2", Payload: []byte("pay 1000")})
		one.Payload = two.Payload
		handled, letter := receive(t, v, one)
		require.Empty(t, handled)
		require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
	})
}

// A signed reference to a payload is not accepted in another event.
func TestReferencesCannotBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := envelope(t, steps(t, 12))
		one := sealed(t, v, eventbus.Event{ID: "1", Payload: make([]byte, 1000)})
		two := sealed(t, v, eventbus.Event{ID: "2", Payload: make([]byte, 2000)})
		one.Headers.Set("envelope-claim", two.Headers.Get("envelope-claim"))
		handled, letter := receive(t, v, one)
		require.Empty(t, handled)
		require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
	})
}

func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		otherAES, otherSigning := middleware.NewKey(bytes.Repeat([]byte{8}, 16)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize))
		old := steps(t, 10)
		rotated := middleware.EnvelopeOptions{
			Encrypt: &middleware.Encrypt{Key: "2027", Keys: map[string]middleware.Key{"2026": aesKey, "2027": otherAES}},
			Sign: &middleware.Sign{
				Key: "new", Private: middleware.NewKey(otherSigning),
				Public: map[string]ed25519.PublicKey{"till": signingKey.Public().(ed25519.PublicKey)},
			},
		}
		e := eventbus.Event{ID: "1", Payload: []byte("pay 1")}
		before, after := sealed(t, envelope(t, old), e), sealed(t, envelope(t, rotated), e)
		require.Equal(t, "2026", before.Headers.Get("envelope-key"))
		require.Equal(t, "2027", after.Headers.Get("envelope-key"))
		for _, stored := range []eventbus.Event{before, after} {
			handled, _ := receive(t, envelope(t, rotated), stored)
			require.Len(t, handled, 1)
			require.Equal(t, "pay 1", string(handled[0].Payload))
		}

		for _, o := range []middleware.EnvelopeOptions{{Encrypt: old.Encrypt}, {Sign: old.Sign}} {
			handled, letter := receive(t, envelope(t, o), after)
			require.Empty(t, handled)
			require.Equal(t, eventbus.ReasonExhausted, letter.Reason, "an unknown key may be on its way, so it is awaited")
			require.Equal(t, 12, letter.Attempts)
		}
	})
}

func TestUnprotectedEventsAreAcceptedOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := steps(t, 10)
		plain := eventbus.Event{ID: "1", Payload: []byte("pay 1")}
		handled, letter := receive(t, envelope(t, o), plain)
		require.Empty(t, handled)
		require.Equal(t, eventbus.ReasonPermanent, letter.Reason)

		o.Encrypt.AcceptPlain, o.Sign.AcceptUnsigned = true, true
		handled, _ = receive(t, envelope(t, o), plain)
		require.Len(t, handled, 1)
		require.Equal(t, "pay 1", string(handled[0].Payload))
	})
}

// A program without a step must not hand sealed data to its handlers.
func TestSealedDataIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, combination := range []int{2, 4} {
			e := sealed(t, envelope(t, steps(t, combination)), eventbus.Event{ID: "1", Payload: make([]byte, 2000)})
			handled, letter := receive(t, envelope(t, middleware.EnvelopeOptions{}), e)
			require.Empty(t, handled)
			require.Equal(t, eventbus.ReasonExhausted, letter.Reason)
		}
	})
}
