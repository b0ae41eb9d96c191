package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

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
