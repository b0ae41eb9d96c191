package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// BenchmarkPartitions consumes a backlog of b.N events of 1,000 keys, in a topic without partitions and in
// topics with some. Run it with -benchtime 1000000x.
func BenchmarkPartitions(b *testing.B) {
	for _, n := range []int{0, 1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			memory := inmemory.New(inmemory.Options{MaxMessages: b.N + 100, MaxBytes: 8 << 30})
			bus, err := eventbus.New(memory, eventbus.Options{
				Observer: observer.Slog(slog.New(slog.DiscardHandler)),
				Topics:   map[string]eventbus.TopicOptions{"orders": {Partitions: n}},
			})
			require.NoError(b, err)
			backlog(b, bus, b.N)
			var handled atomic.Int64
			done := make(chan struct{})
			b.ResetTimer()
			_, err = bus.Subscribe(b.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Start: eventbus.StartEarliest}, func(context.Context, *eventbus.Delivery) error {
				if handled.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			})
			require.NoError(b, err)
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			require.NoError(b, bus.Shutdown(b.Context()))
			require.NoError(b, memory.Close())
		})
	}
}

// backlog publishes n events to the topic orders.
func backlog(b *testing.B, bus *eventbus.Bus, n int) {
	payload := make([]byte, 100)
	for published := 0; published < n; {
		batch := make([]*eventbus.Event, min(500, n-published))
		for i := range batch {
			batch[i] = &eventbus.Event{Key: fmt.Sprint("key-", (published+i)%1000), Type: "order", Payload: payload}
		}
		require.NoError(b, bus.Publish(b.Context(), "orders", batch...))
		published += len(batch)
	}
}
