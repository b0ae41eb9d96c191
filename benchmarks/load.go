package main

import (
	"context"
	"sync"
	"sync/atomic"
)

const batchSize = 100

// batchOf returns the number of events in a batch: 100, or as many as fit into 4 MiB, but
// at least one.
func batchOf(payload int) int { return max(min(batchSize, 4<<20/payload), 1) }

// A load publishes events of one payload to a bus.
type load struct {
	bus     bus
	payload []byte
}

func newPayload(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i * 7)
	}
	return p
}

// single publishes n events from several goroutines, one event in each call.
func (l load) single(ctx context.Context, goroutines, n int) error {
	return share(goroutines, n, func(int) error { return l.bus.publish(ctx, l.payload) })
}

// batches publishes n events from several goroutines. Each call publishes as many events as
// batchOf returns.
func (l load) batches(ctx context.Context, goroutines, n int) error {
	size := batchOf(len(l.payload))
	payloads := make([][]byte, size)
	for i := range payloads {
		payloads[i] = l.payload
	}
	return share(goroutines, (n+size-1)/size, func(i int) error {
		return l.bus.publishBatch(ctx, payloads[:min(size, n-i*size)])
	})
}

// share calls f(0) to f(n-1), divided among several goroutines, and returns the first
// error.
func share(goroutines, n int, f func(i int) error) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, goroutines)
	for range goroutines {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return <-failed
}
