package redisstream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A subscription with many topics has at most Limits.Receivers connections for reads, while events
// of all topics arrive, and none after its drain.
func TestManyTopicsShareConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "app", "secret", "+@all", "~*")
	admin := server.Client(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	const topics, calls = 150, 8
	most := backend.LimitsOf(b).Receivers + calls
	require.Less(t, most, topics)
	got := make(chan string, topics)
	for i := range topics {
		require.NoError(t, bus.Publish(t.Context(), fmt.Sprintf("orders.%d", i), &eventbus.Event{}))
	}
	s, err := bus.Subscribe(t.Context(), "orders.*", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.Topic
		return nil
	})
	require.NoError(t, err)
	for range 3 {
		seen := map[string]bool{}
		for range topics {
			seen[<-got] = true
			require.LessOrEqual(t, connections(t, admin, "app"), most)
		}
		require.Len(t, seen, topics)
		for i := range topics {
			require.NoError(t, bus.Publish(t.Context(), fmt.Sprintf("orders.%d", i), &eventbus.Event{}))
		}
	}
	require.NoError(t, s.Drain(t.Context()))
	falls := func(most int) { // the server sees the end of a connection a little later
		t.Helper()
		require.Eventually(t, func() bool { return connections(t, admin, "app") <= most }, 5*time.Second, 10*time.Millisecond)
	}
	falls(calls)
	require.NoError(t, bus.Shutdown(t.Context()))
	falls(0)
}
