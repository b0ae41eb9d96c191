package nats_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// bothWays runs a test on a backend that takes messages off its connection, and on
// one that leaves them to the client library.
func bothWays(t *testing.T, test func(t *testing.T, b *nats.Backend)) {
	s := natstest.Start(t)
	t.Run("opened", func(t *testing.T) {
		b, err := dial(t, s.URL()+"?namespace=opened")
		require.NoError(t, err)
		test(t, b)
	})
	t.Run("lent", func(t *testing.T) {
		conn, err := natsgo.Connect(s.URL(), natstest.Patient)
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		b, err := nats.New(conn, nats.Options{Namespace: "lent"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		test(t, b)
	})
}

// reachable is how many of some bytes are in memory still.
func reachable(some []weak.Pointer[byte]) (n int) {
	for range 3 {
		runtime.GC()
	}
	for _, p := range some {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// receiveAll receives so many messages and returns a token of each read, and where
// the payloads and the first headers are.
func receiveAll(t *testing.T, from backend.Source, count int) (tokens []any, payloads, headers []weak.Pointer[byte]) {
	t.Helper()
	for len(payloads) < count {
		ds, err := from.Receive(t.Context(), count-len(payloads))
		require.NoError(t, err)
		tokens = append(tokens, ds[0].Token)
		for i := range ds {
			payloads = append(payloads, weak.Make(&ds[i].Payload[0]))
			headers = append(headers, weak.Make(unsafe.StringData(ds[i].Headers[0].Value)))
		}
		clear(ds) // as who has copied what it was lent
	}
	return tokens, payloads, headers
}

// Of what a read has brought nothing is kept but what its receiver keeps; and who
// keeps a delivery to acknowledge it later does not keep the texts and payloads of
// the others.
func TestReadKeepsNothing(t *testing.T) {
	const messages = 128
	bothWays(t, func(t *testing.T, b *nats.Backend) {
		member, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
		require.NoError(t, err)
		msgs := make([]*backend.Message, messages)
		for i := range msgs {
			msgs[i] = &backend.Message{
				Topic: "orders", ID: fmt.Sprint(i), Payload: make([]byte, 5_000),
				Headers: backend.Headers{{Name: "a", Value: strings.Repeat("v", 12<<10)}},
			}
		}
		require.NoError(t, b.Publish(t.Context(), msgs))
		clear(msgs)
		tokens, payloads, headers := receiveAll(t, member, messages)
		require.Zero(t, reachable(payloads), "payloads")
		require.Zero(t, reachable(headers), "headers")
		runtime.KeepAlive(tokens)
		runtime.KeepAlive(member)
	})
}
