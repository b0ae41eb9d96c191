package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// The first line of a script has its name and version, so that an operator recognizes it in
// SLOWLOG or MONITOR.
func TestScriptsBeginWithNameAndVersion(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	require.Len(t, redisstream.ScriptTexts(), len(files), "every script is listed")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		require.Regexp(t, regexp.MustCompile(`\A-- `+name+` \d+: [^\n]+\.\n`), string(text))
		first, _, _ := strings.Cut(string(text), "\n")
		begins := func(text string) bool { return strings.HasPrefix(text, first+"\n") }
		require.True(t, slices.ContainsFunc(redisstream.ScriptTexts(), begins), "%s is listed", name)
	}
}

// The text of a script is constant. Values that vary are keys and arguments, so that no
// name can become code.
func TestScriptsLoadNoCode(t *testing.T) {
	t.Parallel()
	for _, text := range redisstream.ScriptTexts() {
		for _, word := range []string{"loadstring", "load(", "dofile", "%s"} {
			require.NotContains(t, text, word)
		}
	}
}

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

// slowest returns how long the slowest script of f kept the server busy. Because the machine may be
// busy with something else, it tries f up to five times until the result is below enough, and
// returns the best result.
func slowest(t *testing.T, client *redis.Client, enough time.Duration, f func()) time.Duration {
	best := time.Hour
	for try := 0; try < 5 && best >= enough; try++ {
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
		longest := slowest(t, client, most, f)
		t.Logf("%s: %v", name, longest)
		require.Less(t, longest, most, name)
	}
	held = append(held, take(1200)...)
	longest := slowest(t, client, most, idle)
	t.Logf("with %d held, and nothing due: %v", len(held), longest)
	require.Less(t, longest, most)

	require.NoError(t, client.XGroupCreate(t.Context(), stream, "lone", "0").Err())
	c.Group = "lone"
	s = attach(t, b, c)
	receive(t, s, 1200)
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "$").Err())
	longest = slowest(t, client, most, idle)
	t.Logf("with 1,200 held by one member: %v", longest)
	require.Less(t, longest, most)
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "0").Err())
	for range 100 {
		receive(t, s, 1000)
	}
	require.NoError(t, client.XGroupSetID(t.Context(), stream, "lone", "$").Err())
	longest = slowest(t, client, most, idle)
	t.Logf("with 100,000 held by one member: %v", longest)
	require.Less(t, longest, most)
}

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

// flush empties the server's script cache every so often, until stop is called.
func flush(t *testing.T, server *redistest.Server, every time.Duration) (stop func()) {
	client := server.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			_ = client.ScriptFlush(ctx).Err()
			pause(every)
		}
	})
	return func() { cancel(); flusher.Wait() }
}

// F09: a server that forgets its scripts again and again does no harm. No call fails,
// nothing is lost, and nothing is stored or handled twice.
func TestForgottenScriptsHarmNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	var failed atomic.Pointer[error]
	bus := eventbustest.On(t, b, eventbus.Options{Dedup: true, Observer: observer.Observer{
		Failed: func(f observer.Failed) { failed.Store(&f.Err) },
	}})
	const events = 2000
	var mu sync.Mutex
	tries, succeeded := map[string]int{}, map[string]int{}
	done := make(chan struct{})
	o := eventbus.SubscribeOptions{Group: workers, Concurrency: 16, Retry: eventbus.Retry{Initial: 10 * time.Millisecond}}
	_, err := bus.Subscribe(t.Context(), topic, o, func(_ context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if tries[d.ID]++; len(d.ID)%2 == 0 && tries[d.ID] == 1 {
			return errors.New("now and then")
		}
		if succeeded[d.ID]++; len(succeeded) == events {
			close(done)
		}
		return nil
	})
	require.NoError(t, err)
	stop := flush(t, server, 20*time.Millisecond)
	defer stop()
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := range events / 4 / 10 {
				var list []*eventbus.Event
				for i := range 10 {
					list = append(list, &eventbus.Event{ID: fmt.Sprintf("%d-%d-%d", p, n, i)})
				}
				if err := bus.Publish(t.Context(), topic, list...); err != nil {
					t.Errorf("publish: %v", err)
				}
				pause(5 * time.Millisecond)
			}
		})
	}
	publishers.Wait()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Errorf("handled %d of %d", len(succeeded), events)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
	stop()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err, "nothing fails")
	}
	for id, n := range succeeded {
		require.Equal(t, 1, n, "%s was handled once", id)
	}
	length, err := server.Client(t).XLen(t.Context(), stream).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, length, int64(events), "nothing is stored twice")
}

// Several hundred Once messages in one call take several calls of the script. If the
// server forgets it between them, neither order nor outcome changes.
func TestLargeOnceBatchKeepsItsOrderOverForgottenScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	defer flush(t, server, time.Millisecond)()
	last := ""
	for round := range 20 {
		ms := once(batch(fmt.Sprint(round), 350))
		publish(t, b, ms)
		var positions []string
		for _, m := range ms {
			require.False(t, m.Duplicate)
			require.Greater(t, m.Position, last, "%s comes after what stood before it", m.ID)
			last = m.Position
			positions = append(positions, m.Position)
		}
		again := once(batch(fmt.Sprint(round), 350))
		publish(t, b, again)
		for i, m := range again {
			require.True(t, m.Duplicate)
			require.Equal(t, positions[i], m.Position)
		}
	}
	require.Len(t, stored(t, b), 20*350)
}
