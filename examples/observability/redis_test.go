package main

import (
	"testing"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/redisstream"
)

// A client of the program, instrumented with go-redis' own spans, sees the commands of the
// bus that it is lent to.
func TestSpansOfALentClient(t *testing.T) {
	i, err := newInstruments(telemetry.Options{})
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(i.tracers)))
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	bus, err := eventbus.New(b, i.options(observer.Observer{}))
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: "order.placed"}))
	require.NoError(t, bus.Shutdown(t.Context()))
	var names []string
	for _, s := range i.spans.GetSpans() {
		names = append(names, s.Name)
	}
	require.Contains(t, names, "publish orders")
	require.Contains(t, names, "xadd")
}
