package redisstream_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// While a slot moves, a server refuses scripts of which it has only some keys. The driver
// does not take such a refusal, behind an ASK, for success.
func TestRefusedBehindASK(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, declare(t.Context(), b, "warm")) // the scripts and the servers are known
	m := newMover(t, cluster, "bus:{orders}")
	m.begin()
	_, err = b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute, MaxInFlight: 10})
	groups, listErr := b.Groups(t.Context(), "orders")
	t.Logf("attach: %v; groups: %v, %v", err, groups, listErr)
	if err == nil {
		require.Equal(t, []string{"g"}, groups, "Attach succeeded, so the group exists")
	}
	err = b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "x", Once: true}})
	t.Logf("publish: %v", err)
	if err != nil {
		require.NotContains(t, err.Error(), "malformed")
	}
}
