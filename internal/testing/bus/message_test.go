package bus_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// MessageOf returns the message that Publish stores, and EventOf returns its event. MessageOf
// refuses the events that Publish refuses.
func TestMessageOf(t *testing.T) {
	e := eventbus.Event{
		ID: "1", Type: "order.placed", Source: "shop", Subject: "order/1", ContentType: "text/plain", Key: "k",
		Time: time.Now().UTC().Round(0), TTL: time.Hour, Retry: &eventbus.RetryRule{MaxAttempts: 3},
		Headers: eventbus.Headers{{Name: "a", Value: "1"}}, Payload: []byte("payload"), Once: "o",
	}
	m, err := eventbus.MessageOf("orders", &e)
	require.NoError(t, err)
	require.Equal(t, e, eventbus.EventOf(m))
	b := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(t.Context())) })
	require.NoError(t, bus.Publish(t.Context(), "orders", &e))
	stored, err := backend.Read(t.Context(), b, "orders", "", 1)
	require.NoError(t, err)
	m.Position, m.Once, m.OnceKey = stored[0].Position, false, ""
	require.Equal(t, *m, stored[0])

	m, err = eventbus.MessageOf("orders", &eventbus.Event{})
	require.NoError(t, err)
	filled := eventbus.EventOf(m)
	require.NotEmpty(t, filled.ID)
	require.WithinDuration(t, time.Now(), filled.Time, time.Minute)
	require.Empty(t, filled.Source)
	for field, bad := range map[string]*eventbus.Event{"event": nil, "Payload": {Payload: make([]byte, eventbus.MaxPayload+1)}} {
		_, err = eventbus.MessageOf("orders", bad)
		wrong := new(eventbus.FieldError)
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
	_, err = eventbus.MessageOf("a topic", &e)
	require.Error(t, err)
}

// A backend that chooses the positions gets no event with one.
func TestAtPositionIsRefused(t *testing.T) {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	require.NoError(t, err)
	defer bus.Shutdown(t.Context())
	err = bus.Publish(t.Context(), "t", &eventbus.Event{}, &eventbus.Event{AtPosition: "0000000000000009"})
	var field *eventbus.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "events[1].AtPosition", field.Field)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// Of several events with the same Once a topic stores one, whatever their IDs are.
func TestEventOnce(t *testing.T) {
	bus := eventbustest.New(t)
	once := func(text string) *eventbus.Event { return &eventbus.Event{Once: text} }
	receipts, err := bus.PublishReceipts(t.Context(), "orders", once("a"), once("a"), once(""), once(""), once("b"))
	require.NoError(t, err)
	for i, duplicate := range []bool{false, true, false, false, false} {
		require.Equal(t, duplicate, receipts[i].Duplicate, i)
	}
	err = bus.Publish(t.Context(), "orders", once(strings.Repeat("x", 513)))
	require.ErrorContains(t, err, "events[0].Once has 513 bytes")
}

// A backend that remembers nothing refuses an event with Once.
func TestEventOnceIsRefused(t *testing.T) {
	bus, err := eventbus.New(forgetful{inmemory.New(inmemory.Options{})}, eventbus.Options{})
	require.NoError(t, err)
	err = bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{Once: "a"})
	require.EqualError(t, err, "eventbus: events[1].Once is set, but the backend does not remember such texts")
	require.NoError(t, bus.Shutdown(t.Context()))
}

type forgetful struct{ *inmemory.Backend }

func (f forgetful) Limits() backend.Limits {
	l := f.Backend.Limits()
	l.OnceWindow = 0
	return l
}
