package nats_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// usable requires that a backend stores, delivers, delays, settles, reads and purges.
func usable(t *testing.T, b *nats.Backend) {
	t.Helper()
	member, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute, ConfirmAcks: true})
	require.NoError(t, err)
	var ms []*backend.Message
	for i := range 20 {
		ms = append(ms, &backend.Message{Topic: topic, ID: fmt.Sprint(i), Once: true})
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	for attempt := 1; attempt <= 2; attempt++ {
		var ds []backend.Delivery
		for len(ds) < len(ms) {
			some, err := member.Receive(t.Context(), len(ms)-len(ds), 0)
			require.NoError(t, err)
			ds = append(ds, some...)
		}
		for i := range ds {
			require.NoError(t, ds[i].Err)
			require.Equal(t, attempt, ds[i].Attempt)
		}
		require.NoError(t, member.(backend.Extender).Extend(t.Context(), backend.Lend(ds)))
		if attempt == 2 {
			require.NoError(t, member.Ack(t.Context(), backend.Lend(ds)))
			break
		}
		var later []backend.Delayed
		for _, d := range ds {
			later = append(later, backend.Delayed{Delivery: d, For: 10 * time.Millisecond})
		}
		require.NoError(t, member.(backend.Delayer).Delay(t.Context(), later))
	}
	read, err := b.Read(t.Context(), topic, "", 1)
	require.NoError(t, err)
	require.Len(t, read, 1)
	_, err = b.Maintain(t.Context(), topic, group)
	require.NoError(t, err)
	stats, err := b.Stats(t.Context(), topic, group)
	require.NoError(t, err)
	require.Zero(t, stats.Depth)
}

// A backend works on JetStream of another account, which its account imports.
func TestAPIPrefix(t *testing.T) {
	t.Parallel()
	s := natstest.StartConfigured(t, `
jetstream: {}
accounts: {
  STORE: {
    jetstream: enabled
    exports: [{service: "$JS.API.>", response: stream}, {service: "$JS.ACK.>"}, {service: "bus.>"}]
  }
  SHOP: {
    users: [{user: shop, password: secret}]
    imports: [
      {service: {account: STORE, subject: "$JS.API.>"}, to: "JS.store.API.>"}
      {service: {account: STORE, subject: "$JS.ACK.>"}}
      {service: {account: STORE, subject: "bus.>"}}
    ]
  }
}
`)
	b, err := dial(t, "nats://shop:secret@"+s.Addr()+"?api_prefix=JS.store.API")
	require.NoError(t, err)
	usable(t, b)
}

// A backend connected to a leaf node works on JetStream of the hub.
func TestDomain(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	natstest.StartConfigured(t, fmt.Sprintf("jetstream: {domain: hub}\nleafnodes: {host: 127.0.0.1, port: %d}\n", port))
	leaf := natstest.StartConfigured(t, fmt.Sprintf("jetstream: {domain: edge}\nleafnodes: {remotes: [{url: \"nats://127.0.0.1:%d\"}]}\n", port))
	var b *nats.Backend
	require.Eventually(t, func() bool { // the servers connect to each other
		b, err = dial(t, leaf.URL()+"?domain=hub")
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
	usable(t, b)
	away, err := dial(t, leaf.URL()+"?domain=edge")
	require.NoError(t, err)
	topics, err := away.Topics(t.Context())
	require.NoError(t, err)
	require.Empty(t, topics, "stored in the domain of the leaf node")
}

// With inbox_prefix a user works that may not use _INBOX.
func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	server := natstest.StartConfigured(t, `authorization { users: [
		{ user: app, password: p, permissions: { subscribe: ["_INBOX_app.>"] } }
	] }`)
	b, err := dial(t, "nats://app:p@"+server.Addr()+"?inbox_prefix=_INBOX_app")
	require.NoError(t, err)
	stores(t, b)
	u, err := url.Parse("nats://app:p@" + server.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = nats.Open(ctx, u)
	require.Error(t, err, "without it nothing is answered")
	t.Log(err)
}

// The further servers of a URL are used when the first is down, at the start and later.
func TestFurtherServers(t *testing.T) {
	t.Parallel()
	first, second := natstest.Start(t), natstest.Start(t)
	at, err := dial(t, "nats://"+closedAddr+"?addr="+closedAddr2+"&addr="+second.Addr())
	require.NoError(t, err)
	stores(t, at)
	b, err := dial(t, "nats://"+first.Addr()+"?addr="+second.Addr())
	require.NoError(t, err)
	for _, s := range []*natstest.Server{first, second} {
		s.Kill()
		require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
		s.Run()
	}
}

// Opening fails with ErrUnavailable if no server answers, whatever the reason, before its
// context ends. The error has an address.
func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	for name, raw := range map[string]string{
		"a closed port":              "nats://" + closedAddr,
		"several":                    "nats://" + closedAddr + "?addr=" + closedAddr2,
		"a name that nobody has":     "nats://nobody.invalid",
		"names that nobody has":      "nats://nobody.invalid?addr=none.invalid:4222",
		"TLS to a closed port":       "tls://" + closedAddr,
		"a known user, closed ports": "nats://u:p@" + closedAddr,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := dial(t, raw)
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.Regexp(t, closedAddr+`|\.invalid`, err.Error(), "an address that was tried")
		})
	}
	u, err := url.Parse("nats://" + silent.Addr().String() + "?addr=" + silent.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := nats.Open(ctx, u)
		ended <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(4 * time.Second): // the dial timeout of two servers takes longer
		t.Fatal("opening continues after its context has ended")
	}
}

// The context of opening does not bound the connection. A user that was unknown for a
// while reconnects once it is known again.
func TestConnectionsOutliveOpening(t *testing.T) {
	t.Parallel()
	const known, unknown = `authorization { user: app, password: p }`, `authorization { user: app, password: q }`
	server := natstest.StartConfigured(t, known)
	u, err := url.Parse("nats://app:p@" + server.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	b, err := nats.Open(ctx, u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cancel()
	stores(t, b)
	server.Configure(unknown)
	require.Never(t, func() bool { return b.Ping(t.Context()) == nil }, time.Second, 100*time.Millisecond, "it is tried, and denied")
	server.Configure(known)
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
	stores(t, b)
}
