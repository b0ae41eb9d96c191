package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	memoryLook  = 5 * time.Millisecond // how often
	memoryStill = time.Second          // without more: then it is all that is held
	memoryMore  = 1 << 20              // bytes
)

// memory looks at how much the process holds while a handler waits before what is
// left of a backlog. It has handled a quarter at once, so that nobody takes it for a
// slow one, of whose events few are worth holding.
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

// heap returns the bytes of objects, dead ones that are not collected yet too.
func heap() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64())
}
