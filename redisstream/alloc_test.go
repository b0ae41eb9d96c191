package redisstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// typical returns a message as the bus makes them.
func typical() *backend.Message {
	return &backend.Message{
		Topic: "orders", ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10", Key: "customer-7",
		Headers: backend.Headers{
			{Name: "ce-type", Value: "order.placed"},
			{Name: "ce-source", Value: "shop"},
			{Name: "ce-time", Value: "2026-11-21T10:30:00.123456789Z"},
		},
		Payload: make([]byte, 256),
	}
}

// typicalReply is a reply of XREADGROUP with n typical messages.
func typicalReply(n int) reply {
	var r reply
	value := appendEntry(nil, typical())
	r.raw = fmt.Appendf(r.raw, "*1\r\n*2\r\n$12\r\nbus:{orders}\r\n*%d\r\n", n)
	for i := range n {
		id := fmt.Sprintf("1795243593723-%d", i)
		r.raw = fmt.Appendf(r.raw, "*2\r\n$%d\r\n%s\r\n*2\r\n$5\r\nevent\r\n$%d\r\n%s\r\n", len(id), id, len(value), value)
	}
	return r
}

// read returns the deliveries of a reply of XREADGROUP.
func read(s *source, r reply) ([]backend.Delivery, error) {
	p := parser{rest: r.raw}
	ds := s.newDeliveries(&p)
	return ds, p.end()
}

// The number of allocations of a read does not depend on its number of events, except for
// the arenas of 64 KiB each that hold their bytes.
func TestReadingAllocatesPerReadNotPerEvent(t *testing.T) {
	const events = 512
	s := &source{config: backend.Config{Topic: "orders"}}
	r := typicalReply(events)
	ds, err := read(s, r)
	require.NoError(t, err)
	require.Len(t, ds, events)
	m := typical()
	require.Equal(t, m.Headers, ds[events-1].Headers)
	require.Equal(t, m.Payload, ds[events-1].Payload)
	allocs := testing.AllocsPerRun(100, func() { ds, err = read(s, r) })
	require.Len(t, ds, events)
	t.Logf("%.0f allocations for %d events", allocs, events)
	require.LessOrEqual(t, allocs, 8.0, "allocations for a read of %d events", events)
}

// inspected returns an inspection that finds a sound server, without asking it.
func inspected(t *testing.T) *inspection {
	b, node := &Backend{namespace: "bus"}, redis.NewClient(&redis.Options{})
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	b.client = node
	b.addHook(node).Store(true)
	return &inspection{backend: b}
}

// A Publish makes the same number of allocations for any number of messages.
func TestPublishingAllocatesPerCallNotPerMessage(t *testing.T) {
	const messages = 100
	server := inspected(t)
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = typical()
	}
	server.backend.bounds.store("orders", false, time.Now().Add(time.Hour))
	answer := []byte("$17\r\n1795243593723-123\r\n")
	var mem publishBatch
	var failed error
	publish := func() {
		mem.lookUpBounds(t.Context(), server, msgs)
		mem.encode(t.Context(), server, msgs)
		for _, c := range mem.calls {
			_, _ = c.reply.Write(answer)
			c.rest = c.reply.raw
		}
		mem.readReplies()
		for i := range mem.adds {
			failed = cmp.Or(failed, mem.adds[i].err)
		}
		mem.reset()
	}
	publish()
	require.NoError(t, failed)
	for i := range msgs {
		require.Equal(t, "01795243593723-00000000000000000123", msgs[i].Position)
	}
	allocs := testing.AllocsPerRun(100, publish)
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 1.0, "allocations for %d messages: their positions", messages)
}

// The allocations of a call on its way to the server and back are bounded: for a publish of
// one event, for each event of a publish of many, and for each event of a read. The context
// of the call may have an end.
func TestCallAllocations(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	b, err := New(client, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(b.Close(), client.Close())) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	msgs := []*backend.Message{typical()}
	publish := func() { require.NoError(t, b.Publish(ctx, msgs)) }
	for range 512 {
		publish()
	}
	allocs := testing.AllocsPerRun(200, publish)
	t.Logf("%.0f allocations for a publish", allocs)
	require.LessOrEqual(t, allocs, 10.0, "allocations for a publish")
	many := slices.Repeat(msgs, 100)
	allocs = testing.AllocsPerRun(50, func() { require.NoError(t, b.Publish(ctx, many)) }) / 100
	t.Logf("%.2f allocations for a message of a publish of 100", allocs)
	require.LessOrEqual(t, allocs, 2.3, "allocations for a message: a command and the reader of its reply")

	w := newSession(&b.broker, time.Second)
	defer w.end()
	browse := &call{args: []any{"xrange", b.streamKey("orders"), "-", "+", "count", 512}}
	read := func() { browse.reply = browse.reply.next(); w.send(ctx, browse) }
	for range 10 {
		read()
	}
	require.NoError(t, browse.err)
	require.Greater(t, len(browse.reply.raw), 512*256)
	allocs = testing.AllocsPerRun(50, read) / 512
	t.Logf("%.2f allocations for an event of a reply of %d bytes", allocs, len(browse.reply.raw))
	require.LessOrEqual(t, allocs, 3.1, "allocations for an event: one for each string")
}

// A subscription or delivery that is kept after the end of its member keeps little memory.
func TestClosedMembersKeepLittle(t *testing.T) {
	const members, messages = 10, 400
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	b, err := New(client, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(b.Close(), client.Close())) }()
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = typical()
		msgs[i].Payload = make([]byte, 1000)
	}
	require.NoError(t, b.Publish(t.Context(), msgs))
	before := testproc.HeapInUse()
	var kept []backend.Source
	for i := range members {
		s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: fmt.Sprint("g", i), Lease: time.Minute})
		require.NoError(t, err)
		for _, n := range []int{1, messages - 1} { // the first one tells the size of the others
			ds, err := s.Receive(t.Context(), n, 0)
			require.NoError(t, err)
			require.Len(t, ds, n)
			clear(ds)
		}
		require.NoError(t, s.Close())
		kept = append(kept, s)
	}
	each := (testproc.HeapInUse() - before) / members
	t.Logf("a closed member keeps %d bytes", each)
	require.Less(t, each, 64<<10)
	runtime.KeepAlive(kept)
}

// A backend remembers nothing of groups that are gone, except during a long repair.
func TestPastGroupsAreForgotten(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	b, err := New(client, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(b.Close(), client.Close())) }()
	for i := range 10 {
		group := fmt.Sprint("g", i)
		s, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: group, Lease: time.Minute})
		require.NoError(t, err)
		_, err = b.Maintain(t.Context(), "orders", group)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, b.DeleteGroup(t.Context(), "orders", group))
	}
	require.Empty(t, b.repairFrom)
}

// The memory of a session does not keep a large string alive of which a topic was a part.
func TestPublishedTopicsKeepLittle(t *testing.T) {
	server := inspected(t)
	var mem publishBatch
	before := testproc.HeapInUse()
	mem.encode(t.Context(), server, []*backend.Message{{Topic: ("orders" + strings.Repeat("x", 1<<20))[:6]}})
	mem.reset()
	require.Less(t, testproc.HeapInUse()-before, 64<<10)
	runtime.KeepAlive(&mem)
}

func BenchmarkRead(b *testing.B) {
	const events = 512
	s := &source{config: backend.Config{Topic: "orders"}}
	r := typicalReply(events)
	b.ReportAllocs()
	for range b.N {
		if _, err := read(s, r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

func BenchmarkAppendEntry(b *testing.B) {
	m := typical()
	var to []byte
	b.ReportAllocs()
	for range b.N {
		to = appendEntry(to[:0], m)
	}
}
