package redisstream_test

import (
	"bytes"
	"fmt"
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

// Payloads of any size arrive unchanged, alone and together, and each belongs to its
// receiver.
func TestPayloadsOfAnySize(t *testing.T) {
	t.Parallel()
	for name, o := range map[string][]redistest.Option{"plain": nil, "TLS": {redistest.TLS()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, redistest.Start(t, o...).Client(t), redisstream.Options{})
			s := attach(t, b, config())
			var ms []*backend.Message
			for _, size := range []int{0, 1, 4000, 4 << 10, 5 << 10, 16<<10 - 1, 16 << 10, 64 << 10, 300 << 10, 1 << 20, 5 << 20} {
				m := &backend.Message{Topic: topic, ID: fmt.Sprint(size), Payload: bytes.Repeat([]byte("0123456789"), size/10+1)[:size]}
				publish(t, b, []*backend.Message{m})
				ms = append(ms, m)
			}
			publish(t, b, ms)
			ds := receive(t, s, 2*len(ms))
			for i, d := range ds {
				want := ms[i%len(ms)]
				require.Equal(t, want.ID, d.ID)
				require.True(t, bytes.Equal(want.Payload, d.Payload), "payload of %s bytes", d.ID)
				clear(append(d.Payload, "more"...)[:len(d.Payload)])
				clear(d.Payload)
			}
			require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
			all := stored(t, b)
			require.Len(t, all, 2*len(ms))
			for i, m := range all {
				require.True(t, bytes.Equal(ms[i%len(ms)].Payload, m.Payload), "payload of %s bytes", m.ID)
			}
		})
	}
}

// Once a member knows that events are large, a read asks for few. redis-server makes a
// whole reply before it sends it, and serves no other client in the meantime.
func TestLargeEventsAreReadByFew(t *testing.T) {
	t.Parallel()
	b := open(t, redistest.Start(t).Client(t), redisstream.Options{})
	s := attach(t, b, config())
	read := func(most, want int) {
		ds, err := s.Receive(t.Context(), most, 0)
		require.NoError(t, err)
		require.Len(t, ds, want)
		require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	}
	for _, row := range []struct{ size, together int }{{16 << 10, 31}, {900 << 10, 8}, {10 << 10, 50}} {
		large := batch(fmt.Sprint(row.size), 1+row.together+1)
		for _, m := range large {
			m.Payload = make([]byte, row.size)
		}
		publish(t, b, large)
		read(1, 1)
		read(500, row.together)
		read(500, 1)
	}
	publish(t, b, batch("small", 1000))
	read(1, 1)
	read(500, 500)
}

// Members look for messages that others have left behind. But if there are many members,
// not each of them looks at all others, because that would keep the server busy.
func TestManyMembersShareTheSweep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	const owners, members = 100, 10
	var all []member
	for range members {
		all = append(all, attach(t, b, config()))
	}
	addRaw(t, client, owners+1, "\nx")
	hold := func(name string) {
		require.NoError(t, client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: workers, Consumer: name, Streams: []string{stream, ">"}, Count: 1}).Err())
	}
	for i := range owners {
		hold(fmt.Sprintf("host-1-%s-60000", name8(i)))
	}
	hold("host-1-zzzzzzzz-3000")
	held := time.Now()
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())
	came := make(chan backend.Delivery, owners)
	for _, s := range all {
		go func() {
			for ctx := t.Context(); ctx.Err() == nil; {
				ds, err := s.Receive(ctx, 10, 0)
				if err != nil {
					return
				}
				for _, d := range ds {
					came <- d
				}
			}
		}()
	}
	pause(2 * time.Second)
	stats := client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_xpending"]
	calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	n, err := strconv.Atoi(calls)
	require.NoError(t, err, stats)
	require.Less(t, n, 2000, "ten members that look at each of a hundred twice a second make 4,000 calls")

	d := <-came
	require.Equal(t, 2, d.Attempt)
	require.Greater(t, time.Since(held), 2990*time.Millisecond)
	require.Less(t, time.Since(held), 4*time.Second)
}

// addRaw adds n entries without the driver.
func addRaw(t testing.TB, client *redis.Client, n int, value string) {
	pipe := client.Pipeline()
	for range n {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"event", value}})
		if pipe.Len() == 1000 {
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
		}
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}
