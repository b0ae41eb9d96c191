package redisstream_test

import (
	"bytes"
	"context"
	"fmt"
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
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// connections counts the connections of a user at the server.
func connections(t *testing.T, admin *redis.Client, user string) int {
	list, err := admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	return strings.Count(list, " user="+user+" ")
}

// A backend has at most eight connections and one for each member, however many calls are
// under way. Once closed it has none, though its lent client has a pool of hundreds.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "app", "secret", "+@all", "~*")
	admin := server.Client(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret", PoolSize: 300, MinIdleConns: 0})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	defer b.Close()
	require.Zero(t, connections(t, admin, "app"), "nothing is sent before it is needed")
	const members = 5
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	for range members {
		s := attach(t, b, config())
		load.Go(func() {
			for ctx.Err() == nil {
				if ds, _ := s.Receive(ctx, 100, 0); len(ds) > 0 {
					_ = s.Extend(ctx, backend.Lend(ds))
					_ = s.Ack(ctx, backend.Lend(ds))
				}
			}
		})
	}
	for p := range 50 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = b.Publish(ctx, batch(fmt.Sprintf("%d-%d", p, n), 10))
				_, _ = b.Stats(ctx, topic, workers)
			}
		})
	}
	most := 0
	for range 30 {
		pause(30 * time.Millisecond)
		most = max(most, connections(t, admin, "app"))
	}
	cancel()
	load.Wait()
	t.Logf("at most %d connections of %d members", most, members)
	require.LessOrEqual(t, most, members+8)
	require.Greater(t, most, members)
	require.NoError(t, b.Close())
	require.Eventually(t, func() bool { return connections(t, admin, "app") == 0 }, 5*time.Second, 10*time.Millisecond, "nothing stays open")
	require.NoError(t, client.Ping(t.Context()).Err(), "the lent client does")
}

// A subscription with many topics has at most Limits.Receivers connections for reads, while events
// of all topics arrive, and none after its drain.
func TestManyTopicsShareConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "app", "secret", "+@all", "~*")
	admin := server.Client(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	const topics, calls = 150, 8
	most := backend.LimitsOf(b).Receivers + calls
	require.Less(t, most, topics)
	got := make(chan string, topics)
	for i := range topics {
		require.NoError(t, bus.Publish(t.Context(), fmt.Sprintf("orders.%d", i), &eventbus.Event{}))
	}
	s, err := bus.Subscribe(t.Context(), "orders.*", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.Topic
		return nil
	})
	require.NoError(t, err)
	for range 3 {
		seen := map[string]bool{}
		for range topics {
			seen[<-got] = true
			require.LessOrEqual(t, connections(t, admin, "app"), most)
		}
		require.Len(t, seen, topics)
		for i := range topics {
			require.NoError(t, bus.Publish(t.Context(), fmt.Sprintf("orders.%d", i), &eventbus.Event{}))
		}
	}
	require.NoError(t, s.Drain(t.Context()))
	falls := func(most int) { // the server sees the end of a connection a little later
		t.Helper()
		require.Eventually(t, func() bool { return connections(t, admin, "app") <= most }, 5*time.Second, 10*time.Millisecond)
	}
	falls(calls)
	require.NoError(t, bus.Shutdown(t.Context()))
	falls(0)
}

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

// A connection that is silent fails the calls of the one write on it. No other call fails or
// waits for it, though all publish to one topic.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr())
	inner, err := redisstream.New(dial(t, proxy.Addr()), redisstream.Options{})
	require.NoError(t, err)
	b := &counting{Backend: inner}
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	publish := func(payload string) error {
		return bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte(payload)})
	}

	var failed, longest, later atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	other := func() error {
		start := time.Now()
		err := publish("other")
		if took := int64(time.Since(start)); err == nil {
			for most := longest.Load(); took > most && !longest.CompareAndSwap(most, took); {
				most = longest.Load()
			}
		}
		return err
	}
	for range 16 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if other() != nil {
					failed.Add(1)
					return
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	proxy.SwallowOne(func(request []byte) bool { return bytes.Contains(request, victim) })
	wg.Go(func() { // it begins when the silent write is under way
		time.Sleep(500 * time.Millisecond)
		for ; time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if other() == nil {
				later.Add(1)
			}
		}
	})
	require.ErrorIs(t, publish(string(victim)), eventbus.ErrUnknownOutcome)
	wg.Wait()
	t.Logf("%d others were in the silent write, the longest other call took %v", b.with.Load()-1, time.Duration(longest.Load()))
	require.Equal(t, b.with.Load()-1, failed.Load(), "the calls that were in the write")
	require.Less(t, time.Duration(longest.Load()), 2*time.Second, "a silent connection holds its calls for 5 s")
	require.Positive(t, later.Load(), "calls that began later")
}

var victim = []byte("victim")

// counting counts the messages of the call that has the victim.
type counting struct {
	*redisstream.Backend
	with atomic.Int64
}

func (c *counting) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		if bytes.Equal(m.Payload, victim) {
			c.with.Store(int64(len(msgs)))
		}
	}
	return c.Backend.Publish(ctx, msgs)
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
