package bus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// handled subscribes a group to a topic, and returns the deliveries that the group's handler
// got so far.
func handled(t *testing.T, bus eventbus.Subscriber, topic string, result error) func() []*eventbus.Delivery {
	t.Helper()
	var got []*eventbus.Delivery
	_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		got = append(got, d)
		return result
	})
	require.NoError(t, err)
	return func() []*eventbus.Delivery { synctest.Wait(); return got }
}

// storeAndHandle stores a message as another program might, and returns the delivery of it.
func storeAndHandle(t *testing.T, m backend.Message) *eventbus.Delivery {
	t.Helper()
	bus := eventbustest.New(t)
	m.Topic = "orders"
	require.NoError(t, bus.Backend().Publish(t.Context(), []*backend.Message{&m}))
	stored, err := backend.Read(t.Context(), bus.Backend(), "orders", "", 1)
	require.NoError(t, err)
	require.Len(t, stored, 1)
	all := handled(t, bus, "orders", nil)()
	require.Len(t, all, 1)
	require.Equal(t, all[0].Event, eventbus.EventOf(&stored[0]), "EventOf reads as a handler does")
	return all[0]
}

// The stored form has every attribute that CloudEvents requires, even without Options.Service.
func TestStoredEventsAreCloudEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
		got := handled(t, bus, "orders", errors.New("keep it"))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1", Type: "order.placed"}))
		require.Equal(t, "bus.test", got()[0].Source, "the name of the program's file")
		require.Empty(t, got()[0].Headers)
		stored, err := backend.Read(t.Context(), bus.Backend(), "orders", "", 1)
		require.NoError(t, err)
		require.Equal(t, "1", stored[0].ID)
		for name, value := range map[string]string{"ce-specversion": "1.0", "ce-source": "bus.test", "ce-type": "order.placed"} {
			require.Equal(t, value, stored[0].Headers.Get(name), name)
		}
	})
}

// A message that an older version of the bus stored has no version of CloudEvents.
func TestEventsWithoutAVersionAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storeAndHandle(t, backend.Message{ID: "1", Key: "k", Payload: []byte("3"), Headers: eventbus.Headers{
			{Name: "ce-type", Value: "order.placed"},
			{Name: "region", Value: "north"},
			{Name: "ce-datacontenttype", Value: "application/json"},
			{Name: "ce-time", Value: "2026-01-02T03:04:05Z"},
		}})
		require.Equal(t, eventbus.Event{
			ID: "1", Key: "k", Type: "order.placed", ContentType: "application/json", Payload: []byte("3"), Position: d.Position,
			Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Headers: eventbus.Headers{{Name: "region", Value: "north"}},
		}, d.Event)
	})
}

// Another program may write the names of attributes in any letter case.
func TestNamesOfAttributesAreReadInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := storeAndHandle(t, backend.Message{Headers: eventbus.Headers{
			{Name: "Ce-Id", Value: "1"},
			{Name: "CE-SOURCE", Value: "/till"},
			{Name: "Ce-Specversion", Value: "1.0"},
			{Name: "ce-Type", Value: "order.placed"},
			{Name: "Ce-Partitionkey", Value: "k"},
			{Name: "Ce-Subject", Value: "second"},
			{Name: "ce-subject", Value: "first"},
			{Name: "Ce-Dataschema", Value: "urn:order"},
			{Name: "Region", Value: "north"},
		}})
		require.Equal(t, eventbus.Event{
			ID: "1", Key: "k", Type: "order.placed", Source: "/till", Subject: "first", Position: d.Position,
			Headers: eventbus.Headers{{Name: "Region", Value: "north"}, {Name: "ce-dataschema", Value: "urn:order"}},
		}, d.Event)
	})
}

// Extensions reach the handler. They survive forwarding, the dead-letter topic and a redrive.
func TestExtensionsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extensions := eventbus.Headers{
			{Name: "ce-comexample", Value: "a b"},
			{Name: "ce-dataschema", Value: "urn:order"},
			{Name: "ce-traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		}
		bus := eventbustest.New(t)
		first := handled(t, bus, "orders", nil)
		require.NoError(t, bus.Backend().Publish(t.Context(), []*backend.Message{
			{Topic: "orders", Headers: append(eventbus.Headers{{Name: "Ce-Id", Value: "1"}, {Name: "Ce-Type", Value: "order.placed"}}, extensions...)},
		}))
		require.Equal(t, extensions, first()[0].Headers)

		forwarded := first()[0].Event
		failed := handled(t, bus, "bills", eventbus.Permanent(errors.New("no")))
		require.NoError(t, bus.Publish(t.Context(), "bills", &forwarded))
		require.Equal(t, extensions, failed()[0].Headers)

		letters, err := deadletter.Open(bus.Backend(), "bills.dlq")
		require.NoError(t, err)
		report, err := letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, 1, report.Redriven)
		require.Len(t, failed(), 2)
		require.Equal(t, extensions, failed()[1].Headers)
		require.Equal(t, "1", failed()[1].ID)
	})
}

// Publish accepts the names of extensions, and refuses fields and names that are no
// attributes.
func TestPublishAcceptsExtensions(t *testing.T) {
	bus := eventbustest.New(t)
	publish := func(name string) error {
		return bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: name, Value: "x"}}})
	}
	for _, name := range []string{"ce-comexample", "ce-traceparent", "ce-dataschema", "ce-x2"} {
		require.NoError(t, publish(name))
	}
	for _, name := range []string{
		"ce-id", "ce-source", "ce-specversion", "ce-type", "ce-subject", "ce-time", "ce-datacontenttype", "ce-partitionkey", "Ce-Type",
		"ce-expirytime", "ce-retry", "ce-redriveid", "ce-redrivegroup", "ce-redrivecount", "ce-data", "ce-", "ce-Comexample", "Ce-comexample", "ce-my_name",
	} {
		var wrong *eventbus.FieldError
		require.ErrorAs(t, publish(name), &wrong, name)
		require.Equal(t, "events[0].Headers["+name+"]", wrong.Field)
	}
}

// An event in structured mode reaches a handler like the same event in binary mode.
func TestStructuredModeIsRead(t *testing.T) {
	structured := func(t *testing.T, contentType, payload string) *eventbus.Delivery {
		return storeAndHandle(t, backend.Message{
			Headers: eventbus.Headers{{Name: "ce-datacontenttype", Value: contentType}, {Name: "region", Value: "north"}}, Payload: []byte(payload),
		})
	}
	const attributes = `{"specversion":"1.0","id":"1","source":"/till","type":"order.placed"`
	for name, c := range map[string]struct{ rest, contentType, payload string }{
		"JSON":           {`,"data":{"cents": 3}}`, "application/json", `{"cents": 3}`},
		"named JSON":     {`,"datacontenttype":"text/json; charset=utf-8","data":"a"}`, "text/json; charset=utf-8", `"a"`},
		"text":           {`,"datacontenttype":"text/xml","data":"<a/>"}`, "text/xml", `<a/>`},
		"bytes":          {`,"datacontenttype":"image/png","data_base64":"AAH/"}`, "image/png", "\x00\x01\xff"},
		"without data":   {`}`, "", ""},
		"with null data": {`,"data":null,"subject":null}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := structured(t, "application/CloudEvents+json; charset=UTF-8", attributes+`,"time":"2026-01-02T03:04:05Z","partitionkey":"k","comexample":5,"urgent":true`+c.rest)
				require.Equal(t, c.payload, string(d.Payload))
				d.Payload = nil
				require.Equal(t, eventbus.Event{
					ID: "1", Key: "k", Type: "order.placed", Source: "/till", ContentType: c.contentType, Position: d.Position,
					Time:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
					Headers: eventbus.Headers{{Name: "region", Value: "north"}, {Name: "ce-comexample", Value: "5"}, {Name: "ce-urgent", Value: "true"}},
				}, d.Event)
			})
		})
	}
	for name, payload := range map[string]string{
		"is no JSON": "{", "is an array": "[]", "has no ID": `{"specversion":"1.0"}`, "has no version": `{"id":"1"}`, "has an object": attributes + `,"x":{}}`,
		"has a name in upper case": attributes + `,"X":"1"}`, "has data twice": attributes + `,"data":1,"data_base64":"AA=="}`, "has a bad content type": attributes + `,"datacontenttype":{},"data":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := structured(t, "application/cloudevents+json", payload)
				require.Equal(t, payload, string(d.Payload), "as it is")
				require.Equal(t, "application/cloudevents+json", d.ContentType)
			})
		})
	}
	t.Run("published by the bus", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.New(t)
			got := handled(t, bus, "orders", nil)
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "2", ContentType: "application/cloudevents+json", Payload: []byte(attributes + "}")}))
			require.Equal(t, "2", got()[0].ID)
			require.Equal(t, attributes+"}", string(got()[0].Payload), "the data of an event in binary mode")
		})
	})
}
