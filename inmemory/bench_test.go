package inmemory_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

func BenchmarkPublish(b *testing.B) {
	for _, groups := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			mem := open(b, inmemory.Options{})
			for i := range groups {
				attach(b, mem, fmt.Sprint(i))
			}
			msgs := []*backend.Message{{Topic: "orders", ID: "an id of 24 bytes or so.", Payload: make([]byte, 100)}}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n++; n%(1<<19) == 0 {
					b.StopTimer()
					for i := range groups {
						mem.ResetGroup(b.Context(), "orders", fmt.Sprint(i), backend.StartLatest)
					}
					if groups == 0 {
						mem.DeleteTopic(b.Context(), "orders")
					}
					b.StartTimer()
				}
				if err := mem.Publish(b.Context(), msgs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One operation is one message: published, received and acknowledged in batches.
func BenchmarkPublishReceiveAck(b *testing.B) {
	for _, batch := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			mem := open(b, inmemory.Options{})
			src := attach(b, mem, "billing")
			msgs := messages(batch)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n += batch
				if err := mem.Publish(b.Context(), msgs); err != nil {
					b.Fatal(err)
				}
				ds, err := src.Receive(b.Context(), batch, 0)
				if err != nil || len(ds) != batch {
					b.Fatal(len(ds), err)
				}
				if err := src.Ack(b.Context(), backend.Lend(ds)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/msg")
		})
	}
}

// One operation is one Receive and one Ack of 256 messages.
func BenchmarkReceiveAck(b *testing.B) {
	const batch = 256
	mem := open(b, inmemory.Options{})
	src := attach(b, mem, "billing")
	msgs := messages(batch)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%1000 == 0 {
			b.StopTimer()
			for range 1000 {
				if err := mem.Publish(b.Context(), msgs); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
		n++
		ds, err := src.Receive(b.Context(), batch, 0)
		if err != nil || len(ds) != batch {
			b.Fatal(len(ds), err)
		}
		if err := src.Ack(b.Context(), backend.Lend(ds)); err != nil {
			b.Fatal(err)
		}
	}
}

// One operation is one message in a busy bus. Many goroutines publish one message per
// call, one receives all ready messages, and another acknowledges 256 at a time.
func BenchmarkManyPublishers(b *testing.B) {
	const publishers, read, acked = 32, 512, 256
	mem := open(b, inmemory.Options{})
	src := attach(b, mem, "billing")
	held := make(chan []backend.Delivery, 4)
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			msgs := messages(1)
			msgs[0].Payload = make([]byte, 256)
			for left.Add(-1) >= 0 {
				if err := mem.Publish(b.Context(), msgs); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for got := 0; got < b.N; {
			ds, err := src.Receive(b.Context(), read, 0)
			if err != nil {
				b.Error(err)
				break
			}
			got += len(ds)
			held <- slices.Clone(ds) // Receive reuses their memory
		}
		close(held)
	})
	var done []backend.Delivery
	ack := func() {
		if err := src.Ack(b.Context(), backend.Lend(done)); err != nil {
			b.Error(err)
		}
		done = done[:0]
	}
	for ds := range held {
		for _, d := range ds {
			if done = append(done, d); len(done) == acked {
				ack()
			}
		}
	}
	ack()
	wg.Wait()
}

func messages(n int) []*backend.Message {
	ms := make([]*backend.Message, n)
	for i := range ms {
		ms[i] = &backend.Message{
			Topic: "orders", ID: "an id of 24 bytes or so.", Payload: make([]byte, 100),
			Headers: backend.Headers{{Name: "type", Value: "order.created"}, {Name: "source", Value: "shop"}},
		}
	}
	return ms
}
