package bus_test

import (
	"context"
	"errors"
	"fmt"
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

// FuzzPublish: an event is refused with an error that names the field, or arrives
// unchanged.
func FuzzPublish(f *testing.F) {
	f.Add("orders", "id", "type", "source", "subject", "text/plain", "key", "name", "value", []byte("payload"))
	f.Add("a.b", "", "", "", "", "", "", "traceparent", " 00 ", []byte{0, 255})
	f.Add("a..b", "\n", "ce-type", "x", "", "", "", "Ce-Time", "x", []byte(nil))
	f.Fuzz(func(t *testing.T, topic, id, kind, source, subject, contentType, key, name, value string, payload []byte) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
		want := eventbus.Event{
			ID: id, Type: kind, Source: source, Subject: subject, ContentType: contentType, Key: key,
			Headers: eventbus.Headers{{Name: name, Value: value}}, Payload: payload,
		}
		receipts, err := bus.PublishReceipts(t.Context(), topic, &want)
		if err != nil {
			field, ok := errors.AsType[*eventbus.FieldError](err)
			require.True(t, ok, "%v", err)
			require.NotEmpty(t, field.Field)
			return
		}
		require.NoError(t, backend.CheckName(topic))
		if backend.CheckName(topic+".dlq") != nil {
			return // too long for a dead-letter topic
		}
		got := make(chan *eventbus.Delivery, 1)
		_, err = bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: "dead"}, func(_ context.Context, d *eventbus.Delivery) error {
			got <- d
			return nil
		})
		if topic == "dead" {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		d := <-got
		if source == "" {
			require.Equal(t, eventbus.Options{}.Effective().Service, d.Source)
			want.Source = d.Source
		}
		want.ID, want.Time, want.Position = receipts[0].ID, receipts[0].Time, receipts[0].Position
		require.True(t, want.Time.Equal(d.Time))
		d.Time = want.Time
		if len(want.Payload) == 0 {
			want.Payload, d.Payload = nil, nil
		}
		require.Equal(t, want, d.Event)
	})
}

// FuzzOpen: no error shows a URL's password.
func FuzzOpen(f *testing.F) {
	f.Add("redis", "user", "host:6379", "")
	f.Add("mem", "", "h", "max_messages=x")
	f.Add("nats", "u", "h:port", "a=%zz")
	f.Add("redis+x", "u", "[::1", "")
	f.Add("a b", "u%", "h", "")
	f.Add("", "", "", "")
	f.Add("mem", "?", "0", "0") // a password with an unescaped '?' continues as a parameter
	const secret = "canary-f00d"
	f.Fuzz(func(t *testing.T, scheme, user, host, query string) {
		bus, err := eventbus.Open(t.Context(), scheme+"://"+user+":"+secret+"@"+host+"?"+query, eventbus.Options{}, inmemory.Driver{})
		if err == nil {
			require.NoError(t, bus.Shutdown(t.Context()))
			return
		}
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), secret)
	})
}
