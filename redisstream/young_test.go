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

// losses are the ways to lose a stream with its groups.
var losses = map[string]func(t *testing.T, c *redis.Client) error{
	"server": func(t *testing.T, c *redis.Client) error { return c.FlushAll(t.Context()).Err() },
	"key":    func(t *testing.T, c *redis.Client) error { return c.Del(t.Context(), stream).Err() },
}

// After a stream was lost, the Maintain of the first group that is back trims no message
// that the other group has not received. The other group may be attached in this process
// or in another.
func TestLostStreamIsNotTrimmedBeforeItsGroupsAreBack(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		for other, processes := range map[string]int{"one process": 1, "two processes": 2} {
			t.Run(name+", "+other, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				client := dial(t, server.Addr())
				first := open(t, client, redisstream.Options{})
				second := first
				first.SetYouth(0)
				c1, c2 := config(), config()
				c2.Group = "late"
				attached := attach(t, first, c1)
				publish(t, first, batch("before", 3))
				require.NoError(t, attached.Ack(t.Context(), backend.Lend(receive(t, attached, 3))))
				_, err := first.Maintain(t.Context(), topic, workers)
				require.NoError(t, err)
				if processes == 2 {
					second = open(t, client, redisstream.Options{})
					first.SetYouth(time.Minute)
				}
				attach(t, second, c2)

				require.NoError(t, lose(t, client))
				publish(t, first, batch("after", 50))
				again := attach(t, first, c1)
				require.NoError(t, again.Ack(t.Context(), backend.Lend(receive(t, again, 50))))
				_, err = first.Maintain(t.Context(), topic, workers)
				require.NoError(t, err)

				ds := receive(t, attach(t, second, c2), 50)
				require.Equal(t, "after-0", ds[0].ID)
			})
		}
	}
}

// Maintain trims a stream once its youth is over, or once it has many entries.
func TestYoungStreamIsTrimmedInTheEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	settled := func(b *redisstream.Backend, n int) int64 {
		s := attach(t, b, config())
		publish(t, b, batch("a", n))
		require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, n))))
		_, err := b.Maintain(t.Context(), topic, workers)
		require.NoError(t, err)
		return client.XLen(t.Context(), stream).Val()
	}
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	require.Equal(t, int64(10), settled(b, 10), "it is young")
	left := client.PTTL(t.Context(), stream+":young").Val()
	require.Positive(t, left)
	require.LessOrEqual(t, left, time.Minute)
	require.Equal(t, int64(1), client.Del(t.Context(), stream+":young").Val()) // the server would delete it later
	require.Zero(t, settled(b, 1), "it is not any more")
	require.Zero(t, settled(b, 1), "nor young again")

	require.NoError(t, client.FlushAll(t.Context()).Err())
	bounded := open(t, dial(t, server.Addr()), redisstream.Options{MaxMessages: 20})
	require.Equal(t, int64(9), settled(bounded, 9), "it is young")
	require.Zero(t, settled(bounded, 1), "half full")
}
