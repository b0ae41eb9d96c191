package bus_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
)

// null is a backend that stores nothing and always has more messages. It shows the cost of
// the bus itself.
type null struct {
	message   backend.Message
	positions string             // of the remaining messages, concatenated
	left      atomic.Int64       // number of messages still to deliver
	lent      []backend.Delivery // by Receive
	done      chan struct{}
	acked     atomic.Int64
	all       int64
	limits    backend.Limits
}

const (
	firstPosition = 1_000_000_000
	positionLen   = 10
	mostEvents    = 100_000
)

// positions holds the positions of as many events as any test needs.
var positions = sync.OnceValue(func() string {
	digits := make([]byte, 0, mostEvents*positionLen)
	for i := range int64(mostEvents) {
		digits = strconv.AppendInt(digits, firstPosition+i, 10)
	}
	return string(digits)
})

func newNull(events int64) *null {
	n := &null{all: events, done: make(chan struct{}), message: backend.Message{
		Topic: "t", ID: "0198-0000", Payload: make([]byte, 256),
		Headers: backend.Headers{{Name: "ce-type", Value: "order.placed"}, {Name: "ce-time", Value: "2026-01-02T03:04:05Z"}},
	}}
	n.left.Store(events)
	n.positions = positions()
	return n
}

func (n *null) Limits() backend.Limits { return n.limits }

func (n *null) Publish(context.Context, []*backend.Message) error { return nil }

func (n *null) Attach(context.Context, backend.Config) (backend.Source, error) { return n, nil }

func (n *null) Close() error { return nil }

func (n *null) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	left := n.left.Load()
	if left <= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n.lent = slices.Grow(n.lent[:0], int(min(int64(max), left)))[:min(int64(max), left)]
	n.left.Add(-int64(len(n.lent)))
	for i := range n.lent {
		n.lent[i] = backend.Delivery{Message: n.message, Attempt: 1}
		n.lent[i].Position, n.positions = n.positions[:positionLen], n.positions[positionLen:]
	}
	return n.lent, nil
}

func (n *null) Ack(_ context.Context, ds []*backend.Delivery) error {
	if n.acked.Add(int64(len(ds))) == n.all {
		close(n.done)
	}
	return nil
}

func (n *null) Delay(context.Context, []backend.Delayed) error { return nil }

func (n *null) Extend(context.Context, []*backend.Delivery) error { return nil }

// consume makes a bus consume events events and returns when all are acknowledged.
func consume(tb testing.TB, events int64, concurrency int) {
	consumeBy(tb, events, concurrency, handleNull())
}

func handleNull() eventbus.Handler {
	return func(context.Context, *eventbus.Delivery) error { return nil }
}

func consumeBy(tb testing.TB, events int64, concurrency int, h eventbus.Handler) {
	n := newNull(events)
	bus := eventbustest.On(tb, n, eventbus.Options{})
	_, err := bus.Subscribe(tb.Context(), "t", eventbus.SubscribeOptions{Group: "g", Concurrency: concurrency}, h)
	require.NoError(tb, err)
	<-n.done
	require.NoError(tb, bus.Shutdown(tb.Context()))
}

func BenchmarkConsumeNull(b *testing.B) {
	for _, c := range []struct {
		name        string
		concurrency int
	}{{"1", 1}, {"16", 16}, {"256", 256}} {
		b.Run(c.name, func(b *testing.B) {
			const events = mostEvents
			b.ReportAllocs()
			for b.Loop() {
				consume(b, events, c.concurrency)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		})
	}
}

func BenchmarkPublishNull(b *testing.B) {
	bus := eventbustest.On(b, newNull(0), eventbus.Options{Service: "shop"})
	payload := make([]byte, 256)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		events := []*eventbus.Event{{Type: "order.placed", Payload: payload}}
		for b.Loop() {
			if err := bus.Publish(b.Context(), "t", events...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hundred", func(b *testing.B) {
		b.ReportAllocs()
		events := make([]*eventbus.Event, 100)
		for i := range events {
			events[i] = &eventbus.Event{Type: "order.placed", Payload: payload}
		}
		for b.Loop() {
			if err := bus.Publish(b.Context(), "t", events...); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Consuming an event costs the bus one allocation: its Delivery of 256 bytes. Its Hold
// (250 bytes) and its context (56 bytes) share allocations with the others of the read. PerWorker
// adds none.
// Publishing an event costs four, with the context that ends after PublishTimeout. If the
// backend waits for nothing it costs part of one, because IDs and times share memory.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const events = 20_000
	positions() // allocated before the count
	consumed, size := allocations(func() { consume(t, events, 4) })
	t.Logf("%.2f allocations, %.0f bytes for an event consumed", consumed/events, size/events)
	require.LessOrEqual(t, consumed/events, 1.2)
	require.LessOrEqual(t, size/events, 620.0)

	own, _ := allocations(func() { consumeBy(t, events, 4, eventbus.PerWorker(handleNull)) })
	t.Logf("%.2f allocations for an event consumed with a handler for each worker", own/events)
	require.LessOrEqual(t, own/events, 1.2)

	for publishers, most := range map[int]float64{0: 4.3, -1: 0.3} {
		n := newNull(0)
		n.limits.Publishers = publishers
		bus := eventbustest.On(t, n, eventbus.Options{Service: "shop"})
		e := &eventbus.Event{Type: "order.placed"}
		published, _ := allocations(func() {
			for range events {
				require.NoError(t, bus.Publish(t.Context(), "t", e))
			}
		})
		t.Logf("%.2f allocations for an event published, Publishers %d", published/events, publishers)
		require.LessOrEqual(t, published/events, most)
	}
}

// allocations counts the allocations of the process during f, and their bytes.
func allocations(f func()) (n, size float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}
