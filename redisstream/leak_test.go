package redisstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// connections counts the connections of a user at the server.
func connections(t *testing.T, admin *redis.Client, user string) int {
	list, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	return strings.Count(list, " user="+user+" ")
}

// A backend has at most eight connections and one for each member, however many calls are
// under way. Once closed it has none, though its lent client has a pool of hundreds.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "app", "secret", "+@all", "~*")
	admin := server.Client(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret", PoolSize: 300, MinIdleConns: 0})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	defer b.Close()
	require.Zero(t, connections(t, admin, "app"), "nothing is sent before it is needed")
	const members = 5
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	for range members {
		s := attach(t, b, config())
		load.Go(func() {
			for ctx.Err() == nil {
				if ds, _ := s.Receive(ctx, 100, 0); len(ds) > 0 {
					_ = s.Extend(ctx, backend.Lend(ds))
					_ = s.Ack(ctx, backend.Lend(ds))
				}
			}
		})
	}
	for p := range 50 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = b.Publish(ctx, batch(fmt.Sprintf("%d-%d", p, n), 10))
				_, _ = b.Stats(ctx, topic, workers)
			}
		})
	}
	most := 0
	for range 30 {
		pause(30 * time.Millisecond)
		most = max(most, connections(t, admin, "app"))
	}
	cancel()
	load.Wait()
	t.Logf("at most %d connections of %d members", most, members)
	require.LessOrEqual(t, most, members+8)
	require.Greater(t, most, members)
	require.NoError(t, b.Close())
	require.Eventually(t, func() bool { return connections(t, admin, "app") == 0 }, 5*time.Second, 10*time.Millisecond, "nothing stays open")
	require.NoError(t, client.Ping(t.Context()).Err(), "the lent client does")
}
