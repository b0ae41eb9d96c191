package redisstream_test

import (
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A backend names the server as the program has named it, without a password.
func TestIdentity(t *testing.T) {
	server := redistest.Start(t)
	host, portText, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	port, err := strconv.Atoi(portText)
	require.NoError(t, err)
	want := backend.Identity{System: "redis", Address: host, Port: port}

	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	opened, err := redisstream.Open(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, want, backend.IdentityOf(opened))
	require.NoError(t, opened.Close())

	want.Client = "billing-1"
	for _, client := range []redis.UniversalClient{
		redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "billing-1", Username: "u", Password: "secret"}),
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr(), "other:1"}, ClientName: "billing-1"}),
	} {
		lent, err := redisstream.New(client, redisstream.Options{})
		require.NoError(t, err)
		require.Equal(t, want, backend.IdentityOf(lent))
		require.NoError(t, lent.Close())
		require.NoError(t, client.Close())
	}
	client := redis.NewClient(&redis.Options{Addr: "/run/redis.sock"})
	defer client.Close()
	lent, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	require.Equal(t, backend.Identity{System: "redis", Address: "/run/redis.sock"}, lent.Identity())
	require.NoError(t, lent.Close())
}
