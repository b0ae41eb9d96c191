package redisstream_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// F13: a server whose memory is full refuses new messages. Every message can be settled,
// also by members that attach only then, and the server recovers.
func TestFullMemoryRefusesPublishesOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("before", 40))
	held := receive(t, s, 6)

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	require.ErrorIs(t, b.Publish(t.Context(), batch("refused", 1)), backend.ErrFull)
	err := b.Publish(t.Context(), append(batch("refused", 5), once(batch("once", 5))...))
	each(err, 10, func(i int, err error) {
		require.ErrorIs(t, err, backend.ErrFull, "message %d", i)
		require.True(t, backend.NotStored(err))
	})
	require.ErrorIs(t, b.Publish(t.Context(), once(batch("once", 3))), backend.ErrFull)

	require.NoError(t, proxyrig.Declare(t.Context(), b, topic), "the full memory is no refusal")
	require.NoError(t, s.Ack(t.Context(), backend.Lend(held[:2])))
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: held[2]}, {Delivery: held[3], For: time.Millisecond, Refund: true}}))
	require.NoError(t, s.Extend(t.Context(), backend.Lend(held[4:])))
	pause(10 * time.Millisecond) // until both are due, and before new messages
	again := receive(t, s, 2)
	require.ElementsMatch(t, []string{held[2].ID, held[3].ID}, []string{again[0].ID, again[1].ID}, "what is delayed comes back")
	late := attach(t, b, config())
	rest := receive(t, late, 34)
	require.NoError(t, late.Ack(t.Context(), backend.Lend(append(append(rest, again...), held[4:]...))))
	_, err = b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Zero(t, stats.Lag+stats.InFlight+stats.Delayed)

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	after := once(batch("once", 5))
	publish(t, b, after)
	for _, m := range after {
		require.False(t, m.Duplicate, "a Once message that was refused has left no mark")
	}
	receive(t, s, 5)
}

func TestKeyOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Set(t.Context(), stream, "a string", 0).Err())
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	requireEach(t, b, backend.ErrRefused)
	require.Equal(t, "a string", server.Client(t).Get(t.Context(), stream).Val(), "it is left alone")
}

// requireEach requires that publishing and attaching fail with a class, that nothing was
// stored, and that the outcome is certain.
func requireEach(t *testing.T, b *redisstream.Backend, class error) {
	t.Helper()
	err := b.Publish(t.Context(), append(batch("plain", 2), once(batch("once", 2))...))
	each(err, 4, func(i int, err error) {
		require.ErrorIs(t, err, class, "message %d", i)
		require.True(t, backend.NotStored(err), "message %d: %v", i, err)
	})
	each(b.Publish(t.Context(), batch("plain", 2)), 2, func(_ int, err error) { require.ErrorIs(t, err, class) })
	_, err = b.Attach(t.Context(), config())
	require.ErrorIs(t, err, class)
	require.ErrorContains(t, err, "redisstream: attach orders/g: ")
}

func TestReplicaIsUnavailableUntilItIsMaster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 2))
	ds := receive(t, s, 1)
	require.NoError(t, server.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	requireEach(t, b, backend.ErrUnavailable)
	require.ErrorIs(t, s.Ack(t.Context(), backend.Lend(ds)), backend.ErrUnavailable)
	_, err := s.Receive(t.Context(), 1, 0)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NoError(t, server.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	publish(t, b, batch("b", 1))
	receive(t, s, 2)
}

func TestServerThatCannotSaveIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--enable-protected-configs", "yes", "--save", "3600 1000000"))
	admin := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 2))
	ds := receive(t, s, 1)
	gone := t.TempDir() + "/gone"
	require.NoError(t, os.Mkdir(gone, 0o700))
	require.NoError(t, admin.ConfigSet(t.Context(), "dir", gone).Err())
	require.NoError(t, os.Remove(gone))
	require.NoError(t, admin.BgSave(t.Context()).Err())
	require.Eventually(t, func() bool {
		return errors.Is(b.Publish(t.Context(), batch("b", 1)), backend.ErrUnavailable)
	}, 10*time.Second, 20*time.Millisecond)
	requireEach(t, b, backend.ErrUnavailable)
	require.ErrorIs(t, s.Ack(t.Context(), backend.Lend(ds)), backend.ErrUnavailable)
	require.NoError(t, admin.ConfigSet(t.Context(), "stop-writes-on-bgsave-error", "no").Err())
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	publish(t, b, batch("c", 1))
}

func TestMissingCredentialsAreDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "nobody", "secret", "+ping", "+hello", "~*")
	server.User(t, "reader", "secret", "+@all", "~other:*")
	admin := server.Client(t)
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "needed").Err())
	t.Cleanup(func() {
		require.NoError(t, admin.ConfigSet(context.WithoutCancel(t.Context()), "requirepass", "").Err())
	})
	for name, o := range map[string]redis.Options{
		"no password (NOAUTH)":       {},
		"wrong password (WRONGPASS)": {Password: "wrong"},
		"unknown user (WRONGPASS)":   {Username: "who", Password: "secret"},
		"no command (NOPERM)":        {Username: "nobody", Password: "secret"},
		"no key (NOPERM)":            {Username: "reader", Password: "secret"},
	} {
		o.Addr = server.Addr()
		client := redis.NewClient(&o)
		defer client.Close()
		b := open(t, client, redisstream.Options{})
		t.Log(name)
		requireEach(t, b, backend.ErrDenied)
		require.ErrorIs(t, proxyrig.Declare(t.Context(), b, topic), backend.ErrDenied)
	}
}

// If the server refuses a new connection, each message of a batch has the reason, as a single
// message has.
func TestRefusedConnectionIsTheErrorOfEachMessage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "pub", "secret", "~*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "pub", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	publish(t, b, batch("m", 1))
	server.Revoke("pub")
	for _, n := range []int{1, 2} {
		_ = b.Publish(t.Context(), batch("broken", n)) // it may meet the end of the old connection
		each(b.Publish(t.Context(), batch("refused", n)), n, func(_ int, err error) {
			require.ErrorIs(t, err, backend.ErrDenied)
			require.NotErrorIs(t, err, backend.ErrUnknownOutcome)
		})
	}
}

// F14: an account that is removed while it is used gets an error, without a hot loop.
// Everything continues when the account is back.
func TestRevokedAccountIsDeniedAndHeals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all := rules(t)
	grant := func() {
		server.User(t, "app", "secret", append(slices.Clone(all["consumer"]), all["publisher"]...)...)
	}
	grant()
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	b := open(t, dialAs(t, proxy.Addr(), "app", "secret"), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	ds := receive(t, s, 1)

	driver := open(t, dialAs(t, proxy.Addr(), "app", "secret"), redisstream.Options{})
	bus := eventbustest.On(t, driver, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	handled := make(chan string, 10)
	_, err := bus.Subscribe(t.Context(), "bus", eventbus.SubscribeOptions{Group: workers, Lease: lease}, func(_ context.Context, d *eventbus.Delivery) error {
		handled <- d.ID
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(t.Context(), "bus", &eventbus.Event{ID: "before"}))
	require.Equal(t, "before", <-handled)

	server.Revoke("app")
	require.Eventually(t, func() bool { return errors.Is(b.Publish(t.Context(), batch("b", 1)), backend.ErrDenied) }, 5*time.Second, 10*time.Millisecond)
	for range 3 {
		_, err := s.Receive(t.Context(), 1, 0)
		require.ErrorIs(t, err, backend.ErrDenied)
		require.ErrorIs(t, b.Publish(t.Context(), once(batch("b", 1))), backend.ErrDenied)
		require.ErrorIs(t, s.Ack(t.Context(), backend.Lend(ds)), backend.ErrDenied)
	}
	require.Eventually(t, func() bool { return bus.Ready(t.Context()) != nil }, 10*time.Second, 20*time.Millisecond)
	before := total(proxy)
	pause(2 * time.Second)
	said := total(proxy) - before
	t.Logf("%d commands in 2 s of a subscription that is denied", said)
	require.Less(t, said, int64(100), "commands of a subscription that is denied, in 2 s")

	grant()
	require.Eventually(t, func() bool { return b.Publish(t.Context(), batch("c", 1)) == nil }, 5*time.Second, 20*time.Millisecond)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	require.Equal(t, "c-0", receive(t, s, 1)[0].ID)
	require.Eventually(t, func() bool {
		return bus.Publish(t.Context(), "bus", &eventbus.Event{ID: "after"}) == nil
	}, 20*time.Second, 50*time.Millisecond)
	got := <-handled
	for got == "before" { // its acknowledgement came too late
		got = <-handled
	}
	require.Equal(t, "after", got)
	require.Eventually(t, func() bool { return bus.Ready(t.Context()) == nil }, 20*time.Second, 20*time.Millisecond)
}

func total(p *faultproxy.Proxy) (n int64) {
	for _, count := range p.Commands() {
		n += count
	}
	return n
}
