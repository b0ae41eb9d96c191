package redisstream_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	slow      = 5 * time.Millisecond // no command may delay other clients for so long
	delayed   = 10_000
	slowShare = 4 // one call of 4 may be slow, because other programs run on the machine
)

// L10: however many messages are pending, no command of the driver blocks the server for
// long. Messages of dead members are taken over and settled completely.
func TestHugePendingListsHoldUpNobody(t *testing.T) {
	t.Parallel()
	pending := 100_000
	if n, err := strconv.Atoi(os.Getenv("EVENTBUS_PENDING")); err == nil {
		pending = n
	}
	for _, dead := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d dead", dead), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			b := open(t, dial(t, server.Addr()), redisstream.Options{})
			c := config()
			c.Lease = 20 * time.Second
			member := attach(t, b, c)
			leave(t, admin, pending, dead)

			require.NoError(t, admin.ConfigSet(t.Context(), "slowlog-log-slower-than", fmt.Sprint(slow.Microseconds())).Err())
			require.NoError(t, admin.ConfigSet(t.Context(), "slowlog-max-len", "10000").Err())
			require.NoError(t, admin.Do(t.Context(), "slowlog", "reset").Err())
			require.NoError(t, admin.ConfigResetStat(t.Context()).Err())

			fill(t, admin, delayed)
			start := time.Now()
			w := &survivors{b: b, c: c, want: int64(pending + delayed)}
			w.putAside(t, member, delayed)
			w.run(t, member)
			t.Logf("%d entries of %d dead members settled in %v, %.0f/s", pending, dead, time.Since(start), float64(pending)/time.Since(start).Seconds())
			require.Zero(t, w.stats(t))
			requireQuick(t, admin)
		})
	}
}

// fill adds entries.
func fill(t *testing.T, client *redis.Client, n int) {
	for n > 0 {
		pipe := client.Pipeline()
		for range min(n, 5000) {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []any{"event", ":id: left\n\npayload"}})
		}
		n -= min(n, 5000)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
	}
}

// leave fills the topic with entries that dead members hold, with an expired lease.
func leave(t *testing.T, client *redis.Client, entries, dead int) {
	fill(t, client, entries)
	for i := range dead {
		for n := entries / dead; n > 0; n -= min(n, 5000) {
			got, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
				Group: workers, Consumer: fmt.Sprintf("dead-1-%s-1", name8(i)), Streams: []string{stream, ">"}, Count: int64(min(n, 5000)), Block: -1,
			}).Result()
			require.NoError(t, err)
			require.Len(t, got[0].Messages, min(n, 5000))
		}
	}
}

// survivors are members that take over the messages of dead members, and settle them in
// every way.
type survivors struct {
	b       *redisstream.Backend
	c       backend.Config
	want    int64
	settled atomic.Int64
}

// putAside delays the next n entries: one half for an hour, the other half for no time.
func (w *survivors) putAside(t *testing.T, s member, n int) {
	for n > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		ds, err := s.Receive(ctx, min(n, 1000), 0)
		require.NoError(t, err)
		cancel()
		var later []backend.Delayed
		for i := range ds {
			later = append(later, backend.Delayed{Delivery: ds[i], For: time.Duration(i%2) * time.Hour, Refund: i%3 == 0})
			if i%2 == 1 {
				w.want--
			}
		}
		require.NoError(t, s.Delay(t.Context(), later))
		n -= len(ds)
	}
}

func (w *survivors) run(t *testing.T, first member) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 2 {
		s := first
		if i > 0 {
			s = attach(t, w.b, w.c)
		}
		all.Go(func() { w.work(t, ctx, cancel, s) })
	}
	all.Go(func() {
		for ctx.Err() == nil {
			_, err := w.b.Maintain(ctx, topic, workers)
			if _, err2 := w.b.Stats(ctx, topic, workers); (err != nil || err2 != nil) && ctx.Err() == nil {
				t.Errorf("maintain: %v, stats: %v", err, err2)
			}
			if s, err := w.b.Attach(ctx, w.c); err == nil {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
			pause(20 * time.Millisecond)
		}
	})
	all.Wait()
	require.Equal(t, w.want, w.settled.Load(), "everything is settled, once")
}

func (w *survivors) work(t *testing.T, ctx context.Context, done func(), s member) {
	for n := 0; ctx.Err() == nil; n++ {
		ds, err := s.Receive(ctx, 1000, 0)
		if err != nil && ctx.Err() == nil {
			t.Errorf("receive: %v", err)
		}
		if len(ds) == 0 {
			continue
		}
		if n%4 == 0 {
			if err := s.Extend(t.Context(), backend.Lend(ds)); err != nil {
				t.Errorf("extend: %v", err)
			}
		}
		if n%8 == 0 {
			var back []backend.Delayed
			for i := range ds[:len(ds)/2] {
				back = append(back, backend.Delayed{Delivery: ds[i], For: 10 * time.Millisecond})
			}
			if err := s.Delay(t.Context(), back); err != nil {
				t.Errorf("delay: %v", err)
			}
			ds = ds[len(ds)/2:]
		}
		if err := s.Ack(t.Context(), backend.Lend(ds)); err != nil {
			t.Errorf("ack: %v", err)
		}
		if w.settled.Add(int64(len(ds))) >= w.want {
			done()
		}
	}
}

// stats returns the number of messages that are neither settled nor delayed for an hour.
func (w *survivors) stats(t *testing.T) int64 {
	s, err := w.b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	return s.Lag + s.InFlight + s.Delayed - delayed/2
}

// requireQuick requires that each command was quick on average, and that most commands
// were. If other tests run on the machine, it only logs.
func requireQuick(t *testing.T, admin *redis.Client) {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	alone := alone()
	calls := 0
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, _, _ := strings.Cut(rest, ",")
		_, per, _ := strings.Cut(rest, "usec_per_call=")
		per, _, _ = strings.Cut(per, ",")
		micros, err := strconv.ParseFloat(per, 64)
		require.NoError(t, err)
		if alone {
			require.Less(t, micros, float64(slow.Microseconds()), "µs of one %s on average", name)
		}
		if name == "evalsha" || name == "eval" || name == "xreadgroup" || name == "xack" {
			k, _ := strconv.Atoi(n)
			calls += k
			t.Logf("%s: %s calls, %s µs on average", name, n, per)
		}
	}
	entries, err := admin.SlowLogGet(t.Context(), -1).Result()
	require.NoError(t, err)
	times := map[string][]time.Duration{}
	for _, e := range entries {
		what := e.Args[0]
		if strings.HasPrefix(what, "eval") {
			what += redisstream.ScriptName(e.Args[1])
		}
		times[what] = append(times[what], e.Duration)
	}
	for what, ds := range times {
		slices.Sort(ds)
		t.Logf("%s: %d, half up to %v, all but a tenth %v, all %v", what, len(ds), ds[len(ds)/2], ds[len(ds)*9/10], ds[len(ds)-1])
	}
	t.Logf("%d calls of %d took longer than %v", len(entries), calls, slow)
	if alone {
		require.LessOrEqual(t, len(entries), calls/slowShare, "calls that took longer than %v", slow)
	}
}
