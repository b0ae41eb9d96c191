package redisstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// declares stores settings of the topic.
func declares(t testing.TB, b backend.Backend, s backend.TopicSettings) {
	t.Helper()
	got, err := backend.Declare(t.Context(), b, topic, backend.Declaration{Settings: s, Replace: true})
	require.NoError(t, err)
	require.Equal(t, s, got)
}

// depth returns the number of entries of the topic.
func depth(t testing.TB, client *redis.Client) int64 {
	t.Helper()
	n, err := client.XLen(t.Context(), stream).Result()
	require.NoError(t, err)
	return n
}

// aged adds n entries whose ids say that they were stored some time ago.
func aged(t testing.TB, client *redis.Client, n int, ago time.Duration) {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	require.NoError(t, err)
	for i := range n {
		id := fmt.Sprintf("%d-%d", now.Add(-ago).UnixMilli(), i)
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []string{"event", "\n"}}).Err())
	}
}

// Maintain trims a message as soon as all groups have settled it and it is older than Keep.
func TestKeepEndsByTheTimeOfTheID(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	b.SetYouth(0)
	declares(t, b, backend.TopicSettings{Keep: time.Hour})
	aged(t, client, 150, 61*time.Minute)
	aged(t, client, 7, 59*time.Minute)
	publish(t, b, batch("new", 3))
	slow, fast := config(), config()
	slow.Group = "slow"
	late, s := attach(t, b, slow), attach(t, b, config())
	maintain := func() int64 {
		_, err := b.Maintain(t.Context(), topic, workers)
		require.NoError(t, err)
		return depth(t, client)
	}
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 160))))
	require.Equal(t, int64(160), maintain(), "a group has settled none")
	ds := receive(t, late, 160)
	require.NoError(t, late.Ack(t.Context(), backend.Lend(ds[20:])))
	require.Equal(t, int64(160), maintain(), "a group holds the oldest")
	require.NoError(t, late.Ack(t.Context(), backend.Lend(ds[:20])))
	require.Equal(t, int64(10), maintain(), "younger than Keep")
	fast.Group = "new"
	third := attach(t, b, fast)
	receive(t, third, 10)
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Zero(t, stats.Lag)
	declares(t, b, backend.TopicSettings{})
	require.NoError(t, third.Close())
	require.NoError(t, b.DeleteGroup(t.Context(), topic, "new"))
	require.Zero(t, maintain())
}

// A process that only publishes obeys a bound that another process has declared: with its
// first Publish to the topic, and otherwise with the second one a second later.
func TestBoundsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	client := dial(t, redistest.Start(t).Addr())
	b, busy := open(t, client, redisstream.Options{}), open(t, client, redisstream.Options{})
	publish(t, busy, batch("before", 1))
	declares(t, b, backend.TopicSettings{MaxMessages: 5})
	fresh := open(t, client, redisstream.Options{})
	err := fresh.Publish(t.Context(), batch("fresh", 6))
	require.NoError(t, backend.ErrorAt(err, 3))
	require.ErrorIs(t, backend.ErrorAt(err, 4), backend.ErrFull)
	require.ErrorIs(t, backend.ErrorAt(err, 5), backend.ErrFull)

	pause(1100 * time.Millisecond)
	_ = busy.Publish(t.Context(), batch("learns", 1))
	before := depth(t, client)
	require.ErrorIs(t, backend.ErrorAt(busy.Publish(t.Context(), batch("knows", 1)), 0), backend.ErrFull)
	require.Equal(t, before, depth(t, client))

	declares(t, b, backend.TopicSettings{})
	publish(t, busy, batch("free", 10)) // publish.lua reads the settings
	require.Equal(t, before+10, depth(t, client))
}

// A topic without settings costs a publisher one GET in a second, in the round trip of its
// messages, and nothing else.
func TestPlainTopicsAreNotScripted(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	publish(t, b, batch("first", 1))
	before, trips, start := proxy.Commands(), proxy.RoundTrips(), time.Now()
	for i := range 500 {
		if i%100 == 0 {
			b.AskAgain()
		}
		publish(t, b, batch("a", 3))
	}
	after, seconds := proxy.Commands(), int64(time.Since(start)/time.Second)
	require.Equal(t, int64(1500), after["XADD"]-before["XADD"])
	require.GreaterOrEqual(t, after["GET"]-before["GET"], int64(5))
	require.LessOrEqual(t, after["GET"]-before["GET"], 5+seconds)
	require.Zero(t, after["EVALSHA"]+after["EVAL"])
	require.Equal(t, int64(500), proxy.RoundTrips()-trips)
}

// A full topic gives up kept messages, as few as are needed, and no others. The numbers of
// Stats stay exact.
func TestRoomOfFullTopics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{MaxMessages: 1000})
	b.SetYouth(0)
	declares(t, b, backend.TopicSettings{Keep: time.Hour, MaxMessages: 5000}) // more than other topics have
	s := attach(t, b, config())
	publish(t, b, batch("a", 5000))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 5000))))
	publish(t, b, batch("b", 7))
	require.Equal(t, int64(5000), depth(t, client))
	require.Equal(t, "a-7", stored(t, b)[0].ID)

	declares(t, b, backend.TopicSettings{Keep: time.Hour, MaxMessages: 250})
	publish(t, b, batch("c", 1))
	require.Equal(t, int64(250), depth(t, client))
	publish(t, b, batch("d", 240))
	require.Equal(t, int64(250), depth(t, client))
	err := b.Publish(t.Context(), batch("e", 3))
	require.NoError(t, backend.ErrorAt(err, 1), "two settled messages are left")
	require.ErrorIs(t, backend.ErrorAt(err, 2), backend.ErrFull)
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(250), stats.Lag)
	ds := receive(t, s, 100)
	require.Equal(t, "b-0", ds[0].ID)
	stats, err = b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(150), stats.Lag, "in the middle of the topic")
	ds = append(ds, receive(t, s, 150)...)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))

	require.NoError(t, client.XGroupDestroy(t.Context(), stream, workers).Err())
	attach(t, b, backend.Config{Topic: topic, Group: "other", Lease: lease, Start: backend.StartLatest})
	require.ErrorIs(t, backend.ErrorAt(b.Publish(t.Context(), batch("f", 1)), 0), backend.ErrFull, "a group of this process is lost")
}

// Once messages to a topic with a bound make room too, and stay known.
func TestRoomForOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	declares(t, b, backend.TopicSettings{Keep: time.Hour, MaxMessages: 10})
	s := attach(t, b, config())
	publish(t, b, once(batch("a", 10)))
	again := once(batch("a", 10))
	publish(t, b, again)
	require.True(t, again[9].Duplicate)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 10))))
	publish(t, b, once(batch("b", 4)))
	require.Equal(t, "a-4", stored(t, b)[0].ID)
	require.Equal(t, int64(10), depth(t, server.Client(t)))
}
