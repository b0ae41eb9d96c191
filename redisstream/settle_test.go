package redisstream

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Nothing to settle is no error, and waits for no connection.
func TestNothingToSettle(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	b, err := New(client, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()); require.NoError(t, client.Close()) })
	for range maxSessions {
		w, err := b.sessions.Get(t.Context())
		require.NoError(t, err)
		defer b.sessions.Put(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &source{backend: b}
	require.NoError(t, s.Ack(ctx, nil))
	require.NoError(t, s.Delay(ctx, nil))
	require.NoError(t, s.Extend(ctx, nil))
}
