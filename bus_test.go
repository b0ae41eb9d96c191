package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Service: "svc", Observer: observer.Observer{
			Failed:       func(f observer.Failed) { t.Log("failed", f.Scope, f.Err) },
			DeadLettered: func(f observer.DeadLettered) { t.Log("dead", f.ID, f.Reason, f.Err) },
		}})
		var mu sync.Mutex
		got := map[string]int{}
		start := time.Now()
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 4}, func(ctx context.Context, d *eventbus.Delivery) error {
			mu.Lock()
			got[d.ID]++
			mu.Unlock()
			if d.ID == "7" {
				return errors.New("no")
			}
			if d.ID == "8" && d.Attempt < 3 {
				panic("boom")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			e := &eventbus.Event{ID: fmt.Sprint(i), Key: "k" + fmt.Sprint(i%5), Payload: []byte("x")}
			if err := bus.Publish(t.Context(), "orders", e); err != nil {
				t.Fatal(err)
			}
		}
		if err := inmemoryOf(bus).WaitSettled(t.Context()); err == nil {
			t.Log("settled?", sub.Counts())
		}
		mu.Lock()
		t.Log(len(got), got["7"], got["8"], time.Since(start), sub.Counts())
		mu.Unlock()
		if err := bus.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func inmemoryOf(b *eventbus.Bus) *inmemory.Backend { return b.Backend().(*inmemory.Backend) }

func BenchmarkInMemory(b *testing.B) {
	bus := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	var wg sync.WaitGroup
	_, err := bus.Subscribe(b.Context(), "t", eventbus.SubscribeOptions{Group: "g", Concurrency: 16}, func(context.Context, *eventbus.Delivery) error { wg.Done(); return nil })
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 256)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			wg.Add(1)
			if err := bus.Publish(context.Background(), "t", &eventbus.Event{Payload: payload}); err != nil {
				b.Fatal(err)
			}
		}
	})
	wg.Wait()
	bus.Shutdown(context.Background())
}
