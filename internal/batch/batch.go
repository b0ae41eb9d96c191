// Package batch gathers single items and processes them in batches.
package batch

import (
	"runtime"
	"sync"
)

// A Group gathers items and passes them to its flush function in batches. One flush runs at
// a time. Meanwhile the next batch gathers, so a busy Group has batches. Its methods are safe
// for concurrent use, and only Wait blocks.
//
// A Group has one goroutine, but only while there are items to flush.
type Group[T any] struct {
	flush func([]T)
	max   int
	start Start

	mu      sync.Mutex
	items   []T
	spare   []T  // the memory of the previous batch, to be used again
	due     int  // how many items must be flushed now
	running bool // the goroutine runs
	quiet   *sync.Cond
}

// A Start says when a Group flushes.
type Start uint8

const (
	AtOnce Start = iota // as soon as no other flush runs
	Waits               // when it has as many items as a batch, or when Flush is called
)

// New returns a Group that calls flush with at most max items. flush must not keep its slice.
func New[T any](max int, start Start, flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, start: start}
	g.quiet = sync.NewCond(&g.mu)
	return g
}

// Add puts items into the next batch.
func (g *Group[T]) Add(items ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = append(g.items, items...)
	g.begin(g.ripe())
}

// ripe returns how many of the items are due without a Flush.
func (g *Group[T]) ripe() int {
	switch {
	case g.start == AtOnce:
		return len(g.items)
	case len(g.items) >= g.max:
		return g.max
	}
	return 0
}

// Flush makes the items gathered so far due for the next flush. It does not wait until they
// are flushed.
func (g *Group[T]) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin(len(g.items))
}

// Wait flushes all items, and returns when none is left.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.begin(len(g.items)); g.running; g.begin(len(g.items)) {
		g.quiet.Wait()
	}
}

// begin makes the first n items due, and starts the goroutine if it does not run.
func (g *Group[T]) begin(n int) {
	g.due = max(g.due, n)
	if g.due > 0 && !g.running {
		g.running = true
		go g.run()
	}
}

// run flushes batch after batch, while there are due items.
func (g *Group[T]) run() {
	ended := false
	defer func() {
		if !ended { // flush has ended the goroutine, by runtime.Goexit
			go g.run()
		}
	}()
	for {
		if g.start == AtOnce {
			runtime.Gosched() // lets callers that are about to add an item join this batch
		}
		batch := g.take()
		if batch == nil {
			ended = true
			return
		}
		g.flush(batch)
		clear(batch)
		g.mu.Lock()
		g.spare = batch[:0]
		g.mu.Unlock()
	}
}

// take returns the next batch. If no items are due, take returns nil and records that g's
// goroutine ends.
func (g *Group[T]) take() (batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.due == 0 {
		g.running = false
		g.quiet.Broadcast()
		return nil
	}
	n := min(len(g.items), g.max)
	batch, rest := g.items[:n], g.items[n:]
	g.items, g.spare = append(g.spare, rest...), nil
	clear(rest) // otherwise the memory of the batch would keep the rest alive
	g.due = max(g.due-n, g.ripe())
	return batch
}
