package redisstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// Redelivered messages come in portions of bytes too, because the server blocks all other
// clients while it makes a reply.
func TestTakingBackIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	const events, size = 40, 128 << 10
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	ms := batch("a", events)
	for _, m := range ms {
		m.Payload = make([]byte, size)
	}
	publish(t, b, ms)
	var again []backend.Delayed
	for _, d := range receive(t, s, events) {
		again = append(again, backend.Delayed{Delivery: d})
	}
	require.NoError(t, s.Delay(t.Context(), again))
	var got []backend.Delivery
	for len(got) < events {
		ds, err := s.Receive(t.Context(), events, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, len(ds)*size, 640<<10, "bytes of one read")
		for _, d := range ds {
			d.Payload = nil
			got = append(got, d)
		}
	}
	for i, d := range got {
		require.Equal(t, ms[i].ID, d.ID, "in the order of positions")
		require.Equal(t, 2, d.Attempt)
	}
	require.NoError(t, s.Ack(t.Context(), backend.Lend(got)))
	nothing(t, s, 600*time.Millisecond)
}

// The name of another program's consumer has no lease, even if it ends in a number. Its
// messages are not taken from it at once.
func TestForeignConsumersKeepTheirEntries(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	s := attach(t, b, c)
	publish(t, b, batch("a", 2))
	read := func(consumer string) {
		require.NoError(t, client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: workers, Consumer: consumer, Streams: []string{stream, ">"}, Count: 1,
		}).Err())
	}
	read("worker-1")
	read("host-7-abcdefgh-1") // a member that died, whose lease was a millisecond
	require.Equal(t, "a-1", receive(t, s, 1)[0].ID)
	nothing(t, s, 1200*time.Millisecond)
	held, err := client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: stream, Group: workers, Start: "-", End: "+", Count: 1}).Result()
	require.NoError(t, err)
	require.Equal(t, "worker-1", held[0].Consumer)
}

// Maintenance brings no bodies into Lua. XINFO STREAM would bring the first and the last.
func TestMaintenanceReadsNoBodies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 10))
	ds := receive(t, s, 10)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[:5])))
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())
	for range 3 {
		_, err := b.Maintain(t.Context(), topic, workers)
		require.NoError(t, err)
	}
	stats := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
	require.Contains(t, stats, "cmdstat_xpending", "it was counted")
	for name := range stats {
		for _, bodies := range []string{"stream", "xrange", "xrevrange", "xclaim", "xread"} {
			require.False(t, strings.HasSuffix(name, "|"+bodies) || name == "cmdstat_"+bodies, name)
		}
	}
}
