package eventbus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/eventbustest"
)

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
		var wrong *codec.ContentTypeError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, codec.ContentTypeError{Got: "application/cbor", Want: []string{"application/json"}}, *wrong)
	})
}
