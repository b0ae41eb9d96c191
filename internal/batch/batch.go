// Package batch gathers single items and processes them in batches.
package batch

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Group gathers items and passes them to its flush function in batches. It flushes when
// it has max items, when its first item has waited for the time wait, or when Flush is
// called. One flush runs at a time. Meanwhile the next batch gathers, so a busy Group has
// batches even if wait is 0. Its methods are safe for concurrent use, and only Wait blocks.
//
// A Group has one goroutine, but only while there are items to flush.
type Group[T any] struct {
	flush func([]T)
	max   int
	wait  time.Duration

	mu      sync.Mutex
	items   []T
	spare   []T         // the memory of the previous batch, to be used again
	due     bool        // items must be flushed now
	timer   *time.Timer // makes items due; nil before the first wait
	later   []*delayed[T]
	running bool       // the goroutine runs
	quiet   *sync.Cond // wakes Wait when the goroutine has ended
}

// A delayed item is added when its timer fires.
type delayed[T any] struct {
	item  T
	timer *time.Timer
}

// New returns a Group that calls flush with at most max items. An item waits at most for
// the time wait, and then for the flush under way. flush must not keep its slice.
func New[T any](max int, wait time.Duration, flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, wait: wait}
	g.quiet = sync.NewCond(&g.mu)
	return g
}

// Add puts item into the next batch.
func (g *Group[T]) Add(item T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.add(item)
}

func (g *Group[T]) add(item T) {
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

// Later adds item when the time wait has passed, or when Hurry is called.
func (g *Group[T]) Later(item T, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := &delayed[T]{item: item}
	d.timer = time.AfterFunc(wait, func() { g.arrive(d) })
	g.later = append(g.later, d)
}

func (g *Group[T]) arrive(d *delayed[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.Index(g.later, d); at >= 0 { // otherwise Hurry has added it
		g.later = slices.Delete(g.later, at, at+1)
		g.add(d.item)
	}
}

// Hurry adds all items that were given to Later and still wait, without further delay.
func (g *Group[T]) Hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.later {
		d.timer.Stop()
		g.add(d.item)
	}
	g.later = nil
}

// Flush makes the items gathered so far, but at most max of them, due for the next flush. It
// does not wait until they are flushed.
func (g *Group[T]) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start()
}

// Wait flushes all items, including the delayed items of Later, and returns when none is
// left.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		g.start()
		if !g.running && len(g.later) == 0 {
			return
		}
		g.quiet.Wait()
	}
}

// start makes the gathered items due, and starts the goroutine if it does not run.
func (g *Group[T]) start() {
	g.due = len(g.items) > 0
	if g.due && !g.running {
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
		if g.wait == 0 {
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

// take returns the next batch. If no items are due, take returns nil and notes that the
// goroutine of g ends.
func (g *Group[T]) take() (batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.due {
		g.running = false
		g.quiet.Broadcast()
		return nil
	}
	n := min(len(g.items), g.max)
	batch, rest := g.items[:n], g.items[n:]
	g.items, g.spare = append(g.spare, rest...), nil
	clear(rest) // otherwise the memory of the batch would keep the rest alive
	g.due = len(g.items) > 0 && (g.wait == 0 || len(g.items) >= g.max)
	if len(g.items) > 0 && !g.due {
		g.timer.Reset(g.wait)
	}
	return batch
}
