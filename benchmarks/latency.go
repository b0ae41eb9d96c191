package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	latencyHandlers = 16
	leastPayload    = 8 // fewest bytes of a payload, which contains the time when its event was handed over
)

// latency publishes events at a fixed rate, even if earlier events are slow. It measures
// the time from when paced hands an event to the publishing goroutines until the event's
// handler begins.
func (t trial) latency(ctx context.Context, b bus) (o outcome, err error) {
	times := make([]time.Duration, t.events)
	var seen, bad atomic.Int64
	done := make(chan struct{})
	began := time.Now()
	stop, err := b.consume(ctx, latencyHandlers, func(payload []byte) {
		if len(payload) != t.payload {
			bad.Add(1)
			return
		}
		n := int(seen.Add(1))
		if n <= len(times) {
			times[n-1] = time.Since(began) - time.Duration(binary.LittleEndian.Uint64(payload))
		}
		if n == len(times) {
			close(done)
		}
	})
	if err != nil {
		return o, err
	}
	wait(ctx, 20*time.Millisecond) // time for the consumer to begin to wait for events
	runtime.GC()
	start := t.meter.begin()
	err = t.paced(ctx, b, began)
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("%d of %d events handled: %w", seen.Load(), t.events, ctx.Err()))
	}
	end := t.meter.end()
	if err = errors.Join(err, stop()); err != nil {
		return o, err
	}
	if bad.Load() > 0 || seen.Load() != int64(t.events) {
		return o, fmt.Errorf("%d events handled, want %d, and %d payloads of another size", seen.Load(), t.events, bad.Load())
	}
	slices.Sort(times)
	o = outcome{start.until(end, t.events), -1}
	o.P50, o.P99 = quantile(times, 0.5), quantile(times, 0.99)
	return o, nil
}

// paced hands events to publishing goroutines at the rate of the cell. There are so many
// goroutines that an event need not wait until the previous event is stored.
func (t trial) paced(ctx context.Context, b bus, began time.Time) error {
	due := make(chan []byte, t.events)
	failed := make(chan error, publishers)
	var group sync.WaitGroup
	for range publishers {
		group.Go(func() {
			for p := range due {
				if err := b.publish(ctx, p); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	start := time.Now()
	for i := range t.events {
		at := start.Add(time.Duration(float64(i) / float64(t.cell.n) * float64(time.Second)))
		wait(ctx, time.Until(at))
		p := make([]byte, t.payload)
		binary.LittleEndian.PutUint64(p, uint64(time.Since(began)))
		due <- p
	}
	close(due)
	group.Wait()
	close(failed)
	return <-failed
}

// quantile returns the quantile q of sorted, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Seconds() * 1000
}
