package redisstream_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// The first check of a server that hangs delays one caller. The others wait no longer than
// their own contexts.
func TestCheckThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	thaw := proxy.Freeze()
	first := make(chan error, 1)
	go func() { first <- b.Publish(within(t, 4*time.Second), batch("a", 1)) }()
	pause(300 * time.Millisecond)
	start := time.Now()
	err := b.Publish(within(t, 200*time.Millisecond), batch("b", 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), time.Second)
	_, err = b.Attach(within(t, 200*time.Millisecond), config())
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(start), 2*time.Second)
	thaw()
	require.NoError(t, <-first)
}

// A message is reported as certainly not stored only if it is not stored, even if the script
// fails at the message after it.
func TestScriptThatFailsHalfwaySaysWhatIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "unmarked", "secret", "~*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "unmarked", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	publish(t, b, batch("first", 1)) // asks for the settings of the topic
	server.User(t, "unmarked", "secret", "~*", "+@all", "-get")
	ms := batch("a", 3)
	once(ms[1:2])
	err := b.Publish(t.Context(), ms)
	require.NoError(t, backend.ErrorAt(err, 0))
	require.ErrorIs(t, backend.ErrorAt(err, 1), backend.ErrDenied)
	require.ErrorIs(t, backend.ErrorAt(err, 2), backend.ErrDenied)
	require.Len(t, stored(t, b), 2)
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

// A group that is reset to a position after the end of the stream would get no messages
// and no error.
func TestResetBeyondTheEndIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	ms := batch("a", 2)
	publish(t, b, ms)
	ds := receive(t, s, 2)
	err := b.ResetGroup(t.Context(), topic, workers, backend.StartAfter("99999999999999-00000000000000000000"))
	require.ErrorIs(t, err, backend.ErrRefused)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)), "nothing was forgotten")
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(ms[1].Position)))
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(ms[0].Position)))
	receive(t, s, 1)
}

// The longest possible delay does not count as over.
func TestDelayForEver(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	ds := receive(t, s, 1)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: math.MaxInt64}}))
	nothing(t, s, time.Second)
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

// A slow line is not a server that hangs. An answer on its way arrives, however long it
// takes.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const size, n = 2 << 20, 4
	ms := batch("a", n)
	for _, m := range ms {
		m.Payload = make([]byte, size)
	}
	publish(t, open(t, dial(t, server.Addr()), redisstream.Options{}), ms)

	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	proxy.Throttle(size) // bytes per second
	ds, err := s.Receive(t.Context(), n, 0)
	require.NoError(t, err)
	require.Len(t, ds, n)
	ms[0].Payload = make([]byte, n*size)
	publish(t, b, ms[:1])
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

// The driver does not write to a connection that the server has closed while it was idle,
// with or without TLS. A message that is written there may be stored, or not.
func TestConnectionsClosedWhenIdle(t *testing.T) {
	t.Parallel()
	for _, o := range [][]redistest.Option{nil, {redistest.TLS()}} {
		t.Run(strconv.Itoa(len(o)), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, o...)
			client := server.Client(t)
			own := redis.NewClient(&redis.Options{Addr: client.Options().Addr, TLSConfig: client.Options().TLSConfig})
			t.Cleanup(func() { require.NoError(t, own.Close()) })
			b := open(t, own, redisstream.Options{})
			for range 3 {
				publish(t, b, batch("a", 1))
				require.NoError(t, client.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
				pause(100 * time.Millisecond)
			}
			before := client.InfoMap(t.Context(), "stats").Val()["Stats"]["total_connections_received"]
			publish(t, b, batch("a", 1))
			for range 10 {
				publish(t, b, batch("a", 1))
			}
			after := client.InfoMap(t.Context(), "stats").Val()["Stats"]["total_connections_received"]
			n, err := strconv.Atoi(before)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(n+1), after, "one that is well is used again")
		})
	}
}

// Close cuts off a Publish whose message is stored already. ErrClosed then does not mean
// that the message was not stored.
func TestCloseDuringPublishIsNoAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	publish(t, b, batch("a", 1))
	proxy.Swallow(true)
	outcome := make(chan error, 1)
	go func() { outcome <- b.Publish(t.Context(), batch("b", 1)) }()
	require.Eventually(t, func() bool {
		return server.Client(t).XLen(t.Context(), stream).Val() == 2
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, b.Close())
	err := <-outcome
	require.ErrorIs(t, err, backend.ErrClosed)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	require.False(t, backend.NotStored(err))
}

// A connection whose greeting is not answered carries no message.
func TestGreetingIsNoMessage(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	publish(t, b, batch("a", 1))
	proxy.Cut()
	proxy.Swallow(true)
	err := b.Publish(within(t, 300*time.Millisecond), batch("b", 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.Swallow(false)
	proxy.Cut() // a connection that was dialed too late for its call is kept for the next one
	publish(t, b, batch("c", 1))
	require.Len(t, stored(t, b), 2)
	proxy.Swallow(true)
	err = b.Publish(within(t, 300*time.Millisecond), batch("d", 1))
	require.ErrorIs(t, err, backend.ErrUnknownOutcome, "that went out")
}
