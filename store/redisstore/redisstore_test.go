package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/results"
	"github.com/seed41896749/eventbus/store/redisstore"
	"github.com/seed41896749/eventbus/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	require.NoError(t, storetest.TestStore(t.Context(), redisstore.New(client, redisstore.Options{})))
}

// The keys have a prefix and a time to live.
func TestKeys(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	for prefix, o := range map[string]redisstore.Options{
		"eventbus:store:": {}, "mine:": {Prefix: "mine:"},
	} {
		require.NoError(t, redisstore.New(client, o).Set(t.Context(), t.Name(), []byte("v"), time.Hour))
		ttl, err := client.TTL(t.Context(), prefix+t.Name()).Result()
		require.NoError(t, err)
		require.InDelta(t, time.Hour, ttl, float64(time.Minute))
	}
}

func TestErrorsAreReturned(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s := redisstore.New(client, redisstore.Options{})
	_, ok, err := s.Get(t.Context(), "k")
	require.ErrorContains(t, err, "redisstore: get: ")
	require.False(t, ok)
	require.ErrorContains(t, s.Set(t.Context(), "k", nil, time.Hour), "redisstore: set: ")
}

// All members of the service share a Redis server.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	shared := redisstore.New(client, redisstore.Options{})
	o := eventbus.Options{Middleware: []eventbus.Middleware{
		middleware.Dedupe(shared, middleware.DedupeOptions{Age: 72 * time.Hour}),
		results.Middleware(shared, results.Options{}),
	}}
	fmt.Println(len(o.Middleware))
	// Output: 2
}
