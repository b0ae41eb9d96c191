package redisstream_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// One Maintain removes about as many entries as it may, however the server lays them out.
// The next ones remove the rest.
func TestMaintainIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	const all, most = 25_000, 10_000
	addRaw(t, client, all, "\n"+string(make([]byte, 100))) // 37 in a node, of which 10,000 is no multiple
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	b.SetYouth(0)
	c := config()
	c.Start = backend.StartLatest
	attach(t, b, c)
	for left := all; ; {
		next, err := b.Maintain(t.Context(), topic, workers)
		require.NoError(t, err)
		now := int(client.XLen(t.Context(), stream).Val())
		require.LessOrEqual(t, left-now, most+200)
		left = now
		if next > 500*time.Millisecond {
			require.Zero(t, left, "there was no more")
			return
		}
	}
}

// Entries that others have added may have any id.
func TestLargeSerialsAreNotTrimmedUnread(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	const serial = 1<<60 + 200 // as a floating-point number this is 1<<60 + 256
	for i := range 2 {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: stream, ID: "1-" + strconv.Itoa(serial+i), Values: []string{"event", "\n" + strconv.Itoa(i)},
		}).Err())
	}
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 1))))
	_, err := b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, "1", string(receive(t, s, 1)[0].Payload))

	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{
		Stream: stream, ID: "2-18446744073709551615", Values: []string{"event", "\nlast"},
	}).Err())
	receive(t, s, 1)
	other := attach(t, b, backend.Config{Topic: topic, Group: "other", Lease: lease})
	require.NoError(t, other.Ack(t.Context(), backend.Lend(receive(t, other, 2))))
	_, err = b.Maintain(t.Context(), topic, "other")
	require.NoError(t, err)
}

// Once every delayed message is due at some time, Maintain has nothing to continue.
func TestMendingEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 250))
	var ds []backend.Delayed
	for _, d := range receive(t, s, 250) {
		ds = append(ds, backend.Delayed{Delivery: d, For: time.Hour})
	}
	require.NoError(t, s.Delay(t.Context(), ds))
	for _, d := range ds[:5] {
		require.Equal(t, int64(1), server.Client(t).ZRem(t.Context(), stream+":delayed:"+workers, d.Position).Val())
	}
	_, err := b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	receive(t, s, 5)
	next, err := b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, next)
}

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
	require.Zero(t, settled(b, 1), "it is not anymore")
	require.Zero(t, settled(b, 1), "nor young again")

	require.NoError(t, client.FlushAll(t.Context()).Err())
	bounded := open(t, dial(t, server.Addr()), redisstream.Options{MaxMessages: 20})
	require.Equal(t, int64(9), settled(bounded, 9), "it is young")
	require.Zero(t, settled(bounded, 1), "half full")
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

// One process in turn trims a topic and works on a group. Another one takes over when it
// has ended.
func TestOneProcessMaintains(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	first, second := open(t, dial(t, server.Addr()), redisstream.Options{}), open(t, dial(t, server.Addr()), redisstream.Options{})
	first.SetYouth(0)
	second.SetYouth(0)
	s := attach(t, first, config())
	other := config()
	other.Group = "other"
	o := attach(t, second, other)
	settle := func() {
		publish(t, first, batch("a", 3))
		require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 3))))
		require.NoError(t, o.Ack(t.Context(), backend.Lend(receive(t, o, 3))))
	}
	maintain := func(b *redisstream.Backend, group string) {
		next, err := b.Maintain(t.Context(), topic, group)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, next)
	}
	length := func() int64 { return client.XLen(t.Context(), stream).Val() }
	maintain(first, workers)
	settle()
	require.NoError(t, client.XGroupCreateConsumer(t.Context(), stream, "other", "host-1-aaaaaaaa-1").Err())
	pause(2100 * time.Millisecond)
	maintain(second, workers)
	require.Equal(t, int64(3), length(), "it is the other's turn")
	maintain(second, "other")
	require.Equal(t, int64(3), length())
	consumers, err := client.XInfoConsumers(t.Context(), stream, "other").Result()
	require.NoError(t, err)
	require.Len(t, consumers, 1, "the group has a turn of its own")
	maintain(first, "other")
	require.Zero(t, length(), "it keeps its turn")

	settle()
	for _, key := range []string{stream + ":turn", stream + ":delayed:" + workers + ":turn"} {
		left := client.PTTL(t.Context(), key).Val()
		require.Greater(t, left, 5*time.Second)
		require.LessOrEqual(t, left, 10*time.Second)
		require.Equal(t, int64(1), client.Del(t.Context(), key).Val()) // the server would delete it later
	}
	maintain(second, "other")
	require.Zero(t, length())
}
