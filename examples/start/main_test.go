package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// On a fake clock the retries take no time.
func TestBill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		s, err := orders.Subscribe(t.Context(), bus, eventbus.SubscribeOptions{Group: "billing"}, bill)
		require.NoError(t, err)
		require.NoError(t, orders.Publish(t.Context(), bus, Order{"1", "ada", 499}, Order{"2", "ben", 200_000}))
		require.NoError(t, bus.WaitIdle(t.Context()))

		require.EqualValues(t, 2, s.Counts().Failures, "order 1 fails once, and order 2 for good")
		dead := bus.Published("shop.orders.dlq")
		require.Len(t, dead, 1)
		why, _ := eventbus.DeadLetterOf(&dead[0])
		require.Equal(t, "the card is declined", why.Error)
	})
}

func TestPlace(t *testing.T) {
	bus := eventbustest.New(t)
	for body, want := range map[string]int{`{"ID":"1","Customer":"ada","Cents":499}`: http.StatusAccepted, `order`: http.StatusBadRequest} {
		w := httptest.NewRecorder()
		place(bus)(w, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)))
		require.Equal(t, want, w.Code)
	}
	require.Len(t, bus.Published("shop.orders"), 1)
}
