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
	"github.com/seed41896749/eventbus/internal/testing/testproc"
	"github.com/seed41896749/eventbus/nats"
)

// bothWays runs a test on an opened backend, and on one with a caller's connection.
func bothWays(t *testing.T, test func(t *testing.T, b *nats.Backend)) {
	s := natstest.Start(t)
	t.Run("opened", func(t *testing.T) {
		b, err := dial(t, s.URL()+"?namespace=opened")
		require.NoError(t, err)
		test(t, b)
	})
	t.Run("lent", func(t *testing.T) {
		conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		b, err := nats.New(conn, nats.Options{Namespace: "lent"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		test(t, b)
	})
}

// reachable counts the pointers whose memory is still in use.
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

// receiveAll receives count messages. It returns the tokens, and where payloads and first
// headers are in memory.
func receiveAll(t *testing.T, from backend.Source, count int) (tokens []any, payloads, headers []weak.Pointer[byte]) {
	t.Helper()
	for len(payloads) < count {
		ds, err := from.Receive(t.Context(), count-len(payloads), 0)
		require.NoError(t, err)
		tokens = append(tokens, ds[0].Token)
		for i := range ds {
			payloads = append(payloads, weak.Make(&ds[i].Payload[0]))
			headers = append(headers, weak.Make(unsafe.StringData(ds[i].Headers[0].Value)))
		}
		clear(ds) // like a caller that has copied them
	}
	return tokens, payloads, headers
}

// A read's memory is kept only by its receiver. A kept token, for a later acknowledgement,
// does not keep the texts and payloads of other deliveries.
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

// publishAll publishes count large messages in one call. It returns where the text of which
// the topic, the IDs and the headers are parts is in memory.
func publishAll(t *testing.T, to backend.Backend, count int) weak.Pointer[byte] {
	t.Helper()
	text := strings.Repeat("t", 8<<10)
	msgs := make([]*backend.Message, count)
	for i := range msgs {
		msgs[i] = &backend.Message{
			Topic: text[:4], ID: text[:i+1], Key: text[:5], Payload: make([]byte, 10<<10),
			Headers: backend.Headers{{Name: "a", Value: text[:8]}},
		}
	}
	require.NoError(t, to.Publish(t.Context(), msgs))
	return weak.Make(unsafe.StringData(text))
}

// A publish keeps neither copies of its messages nor texts of its caller.
func TestPublishKeepsNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, b *nats.Backend) {
		require.NoError(t, b.Ping(t.Context()))
		before := testproc.HeapInUse()
		text := publishAll(t, b, 2000)
		require.Less(t, testproc.HeapInUse(), before+4<<20, "bytes in use")
		require.Zero(t, reachable([]weak.Pointer[byte]{text}), "texts")
		runtime.KeepAlive(b)
	})
}
