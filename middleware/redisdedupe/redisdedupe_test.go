package redisdedupe_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/middleware/redisdedupe"
)

// A member that starts later knows the events that another one has handled.
func TestMembersShareTheStore(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	prefix := t.Name() + ":"
	var runs atomic.Int64
	for range 2 {
		store := redisdedupe.New(client, redisdedupe.Options{Prefix: prefix, Age: time.Hour})
		bus := eventbustest.NewWith(t, eventbus.Options{
			Middleware: []eventbus.Middleware{middleware.Dedupe(store, middleware.DedupeOptions{})},
		})
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(context.Context, *eventbus.Delivery) error { runs.Add(1); return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}, &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, 1, runs.Load())
	}
	keys, err := client.Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{prefix + "orders/g/1"}, keys)
	ttl, err := client.TTL(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Hour, ttl, float64(time.Minute), "the key expires after Age")
}

func TestTheDefaults(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	store := redisdedupe.New(client, redisdedupe.Options{})
	key := t.Name()
	handled, err := store.Handled(t.Context(), key)
	require.NoError(t, err)
	require.False(t, handled)
	require.NoError(t, store.Mark(t.Context(), key))
	handled, err = store.Handled(t.Context(), key)
	require.NoError(t, err)
	require.True(t, handled)
	ttl, err := client.TTL(t.Context(), "eventbus:dedupe:"+key).Result()
	require.NoError(t, err)
	require.InDelta(t, 24*time.Hour, ttl, float64(time.Minute))
}

func TestANegativeAgePanics(t *testing.T) {
	require.Panics(t, func() { redisdedupe.New(nil, redisdedupe.Options{Age: -1}) })
}

func TestErrorsAreReturned(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	store := redisdedupe.New(client, redisdedupe.Options{})
	_, err := store.Handled(t.Context(), "k")
	require.Error(t, err)
	require.Error(t, store.Mark(t.Context(), "k"))
}

// All members of the service share a Redis server.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	dedupe := middleware.Dedupe(redisdedupe.New(client, redisdedupe.Options{Age: 72 * time.Hour}), middleware.DedupeOptions{})
	o := eventbus.Options{Middleware: []eventbus.Middleware{dedupe}}
	fmt.Println(len(o.Middleware))
	// Output: 1
}
