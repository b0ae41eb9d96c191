package redisstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// crowd fills the topic: a group with pending messages of many members, and more groups
// whose members hold one message each. The names of its members are like names that the driver makes.
func crowd(t *testing.T, client *redis.Client, groups, members, pending int) {
	addRaw(t, client, pending, "\nx")
	pipe := client.Pipeline()
	send := func(most int) {
		if pipe.Len() > most {
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
		}
	}
	for g := range groups {
		group, each := fmt.Sprint("g", g), 1
		if g == 0 {
			group, each = workers, pending/members
		}
		pipe.XGroupCreate(t.Context(), stream, group, "0")
		for m := range members {
			pipe.XReadGroup(t.Context(), &redis.XReadGroupArgs{
				Group: group, Consumer: "host-1-" + name8(m) + "-3600000", Streams: []string{stream, ">"}, Count: int64(each),
			})
			send(200)
		}
	}
	send(0)
}

// slowest returns for how long the slowest script of f stopped the server. It does f several
// times and returns the best result, because the machine may be busy.
func slowest(t *testing.T, client *redis.Client, f func()) time.Duration {
	best := time.Hour
	for range 5 {
		require.NoError(t, client.Do(t.Context(), "slowlog", "reset").Err())
		f()
		var longest time.Duration
		entries, err := client.Do(t.Context(), "slowlog", "get", -1).Slice() // SlowLogGet refuses an entry without arguments
		require.NoError(t, err)
		for _, entry := range entries {
			entry := entry.([]any)
			if args := entry[3].([]any); len(args) > 0 && (args[0] == "evalsha" || args[0] == "eval") {
				longest = max(longest, time.Duration(entry[2].(int64))*time.Microsecond)
			}
		}
		require.Positive(t, longest, "a script ran")
		best = min(best, longest)
	}
	return best
}

// No script stops the server for more than 5 ms, with 100,000 pending messages, 100 groups
// and 200 members of each. Beside other tests a script may take ten times as long.
func TestScriptsAreShort(t *testing.T) {
	most := 50 * time.Millisecond
	if alone() {
		most = 5 * time.Millisecond
	} else {
		t.Parallel()
	}
	server := redistest.Start(t, redistest.Args("--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"))
	client := server.Client(t)
	crowd(t, client, 100, 200, 100_000)
	loaded(t, server)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	c := config()
	c.Lease, c.ConfirmAcks = time.Hour, true
	s := attach(t, b, c)
	idle := func() { nothing(t, s, 700*time.Millisecond) }
	take := func(n int) []backend.Delivery {
		addRaw(t, client, n, "\nx")
		return receive(t, s, n)
	}
	var held []backend.Delivery
	for name, f := range map[string]func(){
		"ack of settled": func() {
			ds := backend.Lend(take(100))
			require.NoError(t, s.Ack(t.Context(), ds))
			require.Error(t, s.Ack(t.Context(), ds))
		},
		"delay and take": func() {
			var ds []backend.Delayed
			for _, d := range take(1000) {
				ds = append(ds, backend.Delayed{Delivery: d, For: time.Millisecond})
			}
			require.NoError(t, s.Delay(t.Context(), ds))
			again := backend.Lend(receive(t, s, 1000))
			require.NoError(t, s.Extend(t.Context(), again))
			require.NoError(t, s.Ack(t.Context(), again))
		},
		"lost reply": func() {
			addRaw(t, client, 1000, "\nx")
			proxy.DropReply(request(conformance.RequestReceive))
			_, err := s.Receive(within(t, 5*time.Second), 1000, 0)
			require.ErrorIs(t, err, backend.ErrUnknownOutcome)
			require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 1000))))
		},
		"maintain": func() {
			for _, group := range []string{workers, "g7"} {
				_, err := b.Maintain(t.Context(), topic, group)
				require.NoError(t, err)
			}
		},
		"look": func() {
			_, err := b.Stats(t.Context(), topic, workers)
			require.NoError(t, err)
			_, err = b.Groups(t.Context(), topic)
			require.NoError(t, err)
		},
		"join and leave": func() { require.NoError(t, attach(t, b, c).Close()) },
	} {
		longest := slowest(t, client, f)
		t.Logf("%s: %v", name, longest)
		require.Less(t, longest, most, name)
	}
	held = append(held, take(1200)...)
	longest := slowest(t, client, idle)
	t.Logf("with %d held, and nothing due: %v", len(held), longest)
	require.Less(t, longest, most)

	require.NoError(t, client.XGroupCreate(t.Context(), stream, "lone", "0").Err())
	c.Group = "lone"
	s = attach(t, b, c)
	receive(t, s, 1200)
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "$").Err())
	longest = slowest(t, client, idle)
	t.Logf("with 1,200 held by one member: %v", longest)
	require.Less(t, longest, most)
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "0").Err())
	for range 100 {
		receive(t, s, 1000)
	}
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "$").Err())
	longest = slowest(t, client, idle)
	t.Logf("with 100,000 held by one member: %v", longest)
	require.Less(t, longest, most)
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
