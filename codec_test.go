package eventbus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// A codec reads its own content type, kinds of it, and events without one.
func TestAccepts(t *testing.T) {
	for contentType, want := range map[string]bool{
		"":                                   true,
		"application/json":                   true,
		"Application/JSON; charset=utf-8":    true,
		"application/json;version=2":         true,
		"application/cloudevents+json":       true,
		"application/cloudevents+json; v=1":  true,
		"application/cbor":                   false,
		"text/plain":                         false,
		"text/json":                          false,
		"application/jsonl":                  false,
		"application/cloudevents-batch+cbor": false,
	} {
		require.Equal(t, want, eventbus.Accepts(eventbus.JSON{}, contentType), contentType)
	}
	require.True(t, eventbus.Accepts(untyped{}, "text/plain"), "a codec without a content type")
}

// untyped is a codec without a content type.
type untyped struct{ eventbus.JSON }

func (untyped) ContentType() string { return "" }

// An event of another content type is a permanent failure that names both.
func TestAnotherContentTypeIsDeadLettered(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		_, err := bus.Subscribe(t.Context(), invoices.Name, eventbus.SubscribeOptions{Group: "ledger"},
			invoices.Handler(func(context.Context, Invoice, *eventbus.Delivery) error {
				t.Error("the handler ran")
				return nil
			}))
		require.NoError(t, err)
		e := &eventbus.Event{Type: invoices.Type, ContentType: "application/cbor", Payload: []byte("{}")}
		require.NoError(t, bus.Publish(t.Context(), invoices.Name, e))
		require.NoError(t, bus.WaitIdle(t.Context()))
		dead := bus.Published("invoices.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "permanent", dead[0].Headers.Get("eventbus-dead-reason"))
		require.Contains(t, dead[0].Headers.Get("eventbus-dead-error"), `content type "application/cbor", want "application/json"`)

		_, err = invoices.Decode(e)
		var wrong *eventbus.ContentTypeError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, eventbus.ContentTypeError{Got: "application/cbor", Want: []string{"application/json"}}, *wrong)
	})
}
