// Package batch turns many small calls into few large ones.
package batch

import (
	"sync"
	"time"
)

// A Group gathers items and flushes them together: when there are max of them,
// or a while after the first, or when it is told to. While one flush is under
// way the next batch gathers, so with no wait at all a busy Group still shares
// its flushes. Its methods are safe for concurrent use and never block.
//
// It has no goroutine while there is nothing to flush.
type Group[T any] struct {
	flush func([]T)
	max   int
	wait  time.Duration

	mu    sync.Mutex
	items []T
	spare []T         // the memory of the batch before
	due   bool        // what is gathered is not to wait any longer
	busy  bool        // run is under way
	timer *time.Timer // one for all batches
	quiet *sync.Cond  // busy has ended
}

// New returns a Group that calls flush, one call at a time, with at most max
// items, no later than wait after the first of them was added. What flush is
// given it must not keep.
func New[T any](max int, wait time.Duration, flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, wait: wait}
	g.quiet = sync.NewCond(&g.mu)
	return g
}

// Add puts item into the next batch.
func (g *Group[T]) Add(item T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = append(g.items, item)
	switch {
	case g.wait == 0 || len(g.items) >= g.max:
		g.start()
	case len(g.items) == 1 && g.timer == nil:
		g.timer = time.AfterFunc(g.wait, g.Flush)
	case len(g.items) == 1:
		g.timer.Reset(g.wait)
	}
}

// Flush ends the wait for what is gathered now. It does not wait for the flush.
func (g *Group[T]) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.items) > 0 {
		g.start()
	}
}

func (g *Group[T]) start() {
	g.due = true
	if !g.busy {
		g.busy = true
		go g.run()
	}
}

// Wait flushes and returns when nothing is left.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy || len(g.items) > 0 {
		if len(g.items) > 0 {
			g.start()
		}
		g.quiet.Wait()
	}
}

// run flushes until nothing is due.
func (g *Group[T]) run() {
	for {
		batch := g.take()
		if batch == nil {
			return
		}
		g.flush(batch)
		g.giveBack(batch)
	}
}

func (g *Group[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.due || len(g.items) == 0 {
		g.busy, g.due = false, false
		g.quiet.Broadcast()
		return nil
	}
	n := min(len(g.items), g.max)
	batch := g.items[:n:n]
	g.items = append(g.spare[:0], g.items[n:]...)
	g.spare = nil
	g.due = g.wait == 0 || len(g.items) >= g.max
	if !g.due && len(g.items) > 0 {
		g.timer.Reset(g.wait)
	}
	return batch
}

// giveBack keeps the memory of a flushed batch for a later one.
func (g *Group[T]) giveBack(batch []T) {
	clear(batch)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spare = batch[:0]
}
