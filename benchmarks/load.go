package main

import (
	"context"
	"sync"
	"sync/atomic"
)

const batchSize = 100

// batchOf returns the number of events in a batch: 100, or fewer that fit into 4 MiB.
func batchOf(payload int) int { return max(min(batchSize, 4<<20/payload), 1) }

// A load publishes the events of a trial.
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

// single publishes n events, one per call, from goroutines goroutines.
func (l load) single(ctx context.Context, goroutines, n int) error {
	return share(goroutines, n, func(int) error { return l.bus.publish(ctx, l.payload) })
}

// batches publishes n events, as many in each call as batchOf says.
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

// share calls f with 0 to n-1 from goroutines goroutines, and returns the first error.
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
