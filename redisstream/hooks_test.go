package redisstream_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A counter is a hook that counts commands.
type counter struct {
	redis.Hook
	commands *atomic.Int64
}

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "client" {
			c.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// The hooks of a lent client see every command that reaches the server.
func TestHooksSeeEveryCommand(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	client := dial(t, proxy.Addr())
	var seen atomic.Int64
	client.AddHook(counter{commands: &seen})
	b := open(t, client, redisstream.Options{MaxMessages: 1000})
	everyVerb(t, b)
	said := int64(0)
	for name, n := range proxy.Commands() {
		if name != "HELLO" && name != "CLIENT" { // sent by go-redis to each new connection, below the hooks
			said += n
		}
	}
	require.Equal(t, said, seen.Load(), "commands: %v", proxy.Commands())
}

// Hooks of the nodes of a Cluster see every command too, and so do hooks of the client.
func TestHooksOfClusterSeeEveryCommand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Ping(t.Context()).Err(), "it knows its nodes")
	var all, nodes atomic.Int64
	client.AddHook(counter{commands: &all})
	require.NoError(t, client.ForEachShard(t.Context(), func(_ context.Context, node *redis.Client) error {
		node.AddHook(counter{commands: &nodes})
		return nil
	}))
	b := open(t, client, redisstream.Options{})
	publish(t, b, batch("warm", 1))
	before, beforeNodes := all.Load(), nodes.Load()
	const events = 20
	publish(t, b, batch("a", events))
	require.Equal(t, int64(events), all.Load()-before)
	require.Equal(t, int64(events), nodes.Load()-beforeNodes)
}

// everyVerb uses each verb once, at least.
func everyVerb(t *testing.T, b *redisstream.Backend) {
	s := attach(t, b, config())
	publish(t, b, batch("a", 10))
	publish(t, b, once(batch("b", 10)))
	ds := receive(t, s, 20)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)))
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: 10 * time.Millisecond}}))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[1:])))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 1))))
	_, err := b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	_, err = b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	_, err = b.Topics(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Ping(t.Context()))
	require.Len(t, stored(t, b), 20)
	require.NoError(t, s.Close())
	require.NoError(t, b.DeleteTopic(t.Context(), topic))
}
