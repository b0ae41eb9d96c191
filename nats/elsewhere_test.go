package nats_test

import (
	"fmt"
	"net"
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
