package cloudevents_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/examples/cloudevents"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// broker is a running server, as the bus and as a program without the bus use it.
type broker struct {
	url   string
	raw   func(t *testing.T) *cloudevents.Message                    // reads the first message of topic orders
	write func(t *testing.T, headers map[string]string, data []byte) // stores a message in topic orders
}

func brokers() map[string]func(t *testing.T) broker {
	return map[string]func(t *testing.T) broker{"nats": onNATS, "redis": onRedis}
}

func onNATS(t *testing.T) broker {
	server := natstest.Start(t)
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return broker{
		url: server.URL(),
		raw: func(t *testing.T) *cloudevents.Message {
			stream, err := js.Stream(t.Context(), "bus=orders")
			require.NoError(t, err)
			info, err := stream.Info(t.Context())
			require.NoError(t, err)
			stored, err := stream.GetMsg(t.Context(), info.State.FirstSeq)
			require.NoError(t, err)
			m := &cloudevents.Message{Headers: map[string]string{}, Data: stored.Data}
			for name := range stored.Header {
				m.Headers[name] = stored.Header.Get(name)
			}
			return m
		},
		write: func(t *testing.T, headers map[string]string, data []byte) {
			m := &natsgo.Msg{Subject: "bus.orders", Header: natsgo.Header{}, Data: data}
			for name, value := range headers {
				m.Header.Set(name, value)
			}
			_, err := js.PublishMsg(t.Context(), m)
			require.NoError(t, err)
		},
	}
}

func onRedis(t *testing.T) broker {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	const key = "bus:{orders}"
	return broker{
		url: server.URL(),
		raw: func(t *testing.T) *cloudevents.Message {
			entries, err := client.XRange(t.Context(), key, "-", "+").Result()
			require.NoError(t, err)
			require.NotEmpty(t, entries)
			head, data, _ := strings.Cut(entries[0].Values["event"].(string), "\n\n")
			m := &cloudevents.Message{Headers: map[string]string{}, Data: []byte(data)}
			for line := range strings.Lines(head) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
				m.Headers[strings.Replace(name, ":id", "ce-id", 1)] = value
			}
			return m
		},
		write: func(t *testing.T, headers map[string]string, data []byte) {
			var entry strings.Builder
			for name, value := range headers {
				entry.WriteString(name + ": " + value + "\n")
			}
			entry.WriteString("\n" + string(data))
			require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"event", entry.String()}}).Err())
		},
	}
}

func open(t *testing.T, url string, o eventbus.Options) *eventbus.Bus {
	bus, err := eventbus.Open(t.Context(), url, o, redisstream.Driver{}, nats.Driver{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	return bus
}

// receive returns the first event that a new group of topic orders gets.
func receive(t *testing.T, bus *eventbus.Bus) eventbus.Event {
	got := make(chan *eventbus.Delivery, 1)
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d
		return nil
	})
	require.NoError(t, err)
	select {
	case d := <-got:
		d.Position = ""
		return d.Event
	case <-time.After(30 * time.Second):
		require.FailNow(t, "no event")
		return eventbus.Event{}
	}
}

// The SDK reads a message that the bus stored, and finds no fault with it.
func TestSDKReadsMessagesOfTheBus(t *testing.T) {
	for name, start := range brokers() {
		for service, source := range map[string]string{"": "cloudevents.test", "//shop.example/till": "//shop.example/till"} {
			t.Run(name+" "+service, func(t *testing.T) {
				t.Parallel()
				b := start(t)
				bus := open(t, b.url, eventbus.Options{Service: service})
				at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{
					ID: "1", Type: "order.placed", Subject: "o-1", ContentType: "application/json", Time: at, Payload: []byte(`{"cents":3}`),
					Headers: eventbus.Headers{{Name: "ce-comexample", Value: "a b"}, {Name: "ce-dataschema", Value: "urn:order"}, {Name: "region", Value: "north"}},
				}))
				e, err := binding.ToEvent(t.Context(), b.raw(t))
				require.NoError(t, err)
				require.NoError(t, e.Validate())
				want := event.New("1.0")
				want.SetID("1")
				want.SetType("order.placed")
				want.SetSource(source)
				want.SetSubject("o-1")
				want.SetTime(at)
				want.SetDataSchema("urn:order")
				want.SetExtension("comexample", "a b")
				require.NoError(t, want.SetData("application/json", json.RawMessage(`{"cents":3}`)))
				require.Equal(t, want.String(), e.String())
			})
		}
	}
}

// A handler reads an event that the SDK wrote in binary mode.
func TestHandlersReadEventsOfTheSDK(t *testing.T) {
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			bus := open(t, b.url, eventbus.Options{})
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "first"}, func(context.Context, *eventbus.Delivery) error { return nil }) // makes the topic
			require.NoError(t, err)
			sent := written(t)
			var m cloudevents.Message
			_, err = binding.Write(t.Context(), binding.ToMessage(sent), nil, &m)
			require.NoError(t, err)
			b.write(t, m.Headers, m.Data)
			require.Equal(t, want(sent), receive(t, bus))
		})
	}
}

// A handler reads an event that the SDK wrote in structured mode, if its content type is
// said.
func TestHandlersReadStructuredMode(t *testing.T) {
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			bus := open(t, b.url, eventbus.Options{})
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "first"}, func(context.Context, *eventbus.Delivery) error { return nil }) // makes the topic
			require.NoError(t, err)
			sent := written(t)
			data, err := sent.MarshalJSON()
			require.NoError(t, err)
			b.write(t, map[string]string{"ce-datacontenttype": event.ApplicationCloudEventsJSON}, data)
			require.Equal(t, want(sent), receive(t, bus))
		})
	}
}

// written returns an event of the SDK.
func written(t *testing.T) *event.Event {
	e := event.New()
	e.SetID("1")
	e.SetType("order.placed")
	e.SetSource("https://shop.example/till?no=1")
	e.SetSubject("o-1")
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC))
	e.SetExtension("partitionkey", "ada")
	e.SetExtension("comexample", 5)
	require.NoError(t, e.SetData("application/json", map[string]int{"cents": 3}))
	require.NoError(t, e.Validate())
	return &e
}

// want returns the event that a handler should get of e.
func want(e *event.Event) eventbus.Event {
	return eventbus.Event{
		ID: e.ID(), Type: e.Type(), Source: e.Source(), Subject: e.Subject(), Time: e.Time(), Key: "ada",
		ContentType: e.DataContentType(), Payload: e.Data(), Headers: eventbus.Headers{{Name: "ce-comexample", Value: "5"}},
	}
}
