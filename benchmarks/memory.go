package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	memoryLook  = 5 * time.Millisecond // pause between two measurements of the heap
	memoryStill = time.Second          // if the heap has not grown for this time, the bus prefetches no more
	memoryMore  = 1 << 20              // bytes; the heap has not grown if it has grown by less
)

// memory measures the heap while a handler blocks and the rest of a backlog waits. First
// the handler handles a quarter of the events without a pause. Otherwise the bus would
// prefetch only a few events for such a slow handler.
func (t trial) memory(ctx context.Context, b bus) (o outcome, err error) {
	runtime.GC()
	before := heap()
	let := make(chan struct{})
	var seen atomic.Int64
	stop, err := b.consume(ctx, t.handlers(), func([]byte) {
		if seen.Add(1) > int64(t.events/4) {
			<-let
		}
	})
	if err != nil {
		return o, err
	}
	o = outcome{cost{Events: t.events}, -1}
	for at := time.Now(); time.Since(at) < memoryStill && ctx.Err() == nil; wait(ctx, memoryLook) {
		now := heap() - before
		if now > o.PeakBytes+memoryMore {
			at = time.Now()
		}
		o.PeakBytes = max(o.PeakBytes, now)
	}
	runtime.GC()
	o.LiveBytes = heap() - before
	close(let)
	return o, stop()
}

// heap returns the size of all objects on the heap, including dead objects that are not
// collected yet.
func heap() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64())
}
