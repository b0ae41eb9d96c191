package eventbus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

type Invoice struct {
	Customer string
	Cents    int
}

var invoices = eventbus.Topic[Invoice]{
	Name: "invoices", Type: "invoice.sent",
	Key: func(i Invoice) string { return i.Customer },
}

// Typed events under synctest, where a retry after a minute takes no time. You can test the
// handlers of your application in this way.
func TestTypedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		start := time.Now()
		paid := map[string]int{}
		_, err := invoices.Subscribe(t.Context(), bus, eventbus.SubscribeOptions{Group: "ledger"},
			func(_ context.Context, i Invoice, _ *eventbus.Delivery) error {
				if time.Since(start) < time.Minute {
					return errors.New("the ledger is closed")
				}
				paid[i.Customer] += i.Cents
				return nil
			})
		require.NoError(t, err)

		require.NoError(t, invoices.Publish(t.Context(), bus, Invoice{"ada", 1200}, Invoice{"ada", 300}, Invoice{"ben", 50}))
		require.NoError(t, bus.Publish(t.Context(), invoices.Name, &eventbus.Event{ID: "odd", Type: invoices.Type, Payload: []byte("?")}))
		require.NoError(t, bus.WaitIdle(t.Context()))

		require.Equal(t, map[string]int{"ada": 1500, "ben": 50}, paid)
		dead := bus.Published("invoices.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "odd", dead[0].Headers.Get("eventbus-dead-id"), "what cannot be decoded is put aside")
	})
}
