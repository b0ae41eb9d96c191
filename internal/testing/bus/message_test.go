package bus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// MessageOf returns the message of Publish, EventOf returns the event again, and both refuse
// the same events.
func TestMessageOf(t *testing.T) {
	e := eventbus.Event{
		ID: "1", Type: "order.placed", Source: "shop", Subject: "order/1", ContentType: "text/plain", Key: "k",
		Time: time.Now().UTC().Round(0), TTL: time.Hour, Retry: &eventbus.RetryRule{MaxAttempts: 3},
		Headers: eventbus.Headers{{Name: "a", Value: "1"}}, Payload: []byte("payload"),
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
	m.Position = stored[0].Position
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
