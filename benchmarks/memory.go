package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	memoryLook  = 5 * time.Millisecond // how often
	memoryStill = time.Second          // without more: then it is all that is held
	memoryMore  = 1 << 20              // bytes
)

// memory looks at how much the process holds while a handler waits before a
// backlog.
func (t trial) memory(ctx context.Context, b bus) (o outcome, err error) {
	runtime.GC()
	before := heap()
	let := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(let) }) }
	stop, err := b.consume(ctx, t.handlers(), func([]byte) { <-let })
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
	release()
	return o, stop()
}

// heap returns the bytes of objects, dead ones that are not collected yet too.
func heap() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64())
}
