// Package batch turns many small calls into few large ones.
package batch

import (
	"runtime"
	"sync"
	"time"
)

// A Group gathers items and flushes them together: when there are max of them,
// or a while after the first, or when it is told to. While one flush is under
// way the next batch gathers, so with no wait at all a busy Group still shares
// its flushes. Its methods are safe for concurrent use and never block.
//
// Its goroutine comes with the first flush, stays a second for the next, as a
// warm stack is worth more than a new one, and is gone after Wait. Who adds one
// item at a time needs none of it: see Run.
type Group[T any] struct {
	flush func([]T)
	loop  func() // run, kept so that starting it allocates nothing
	max   int
	wait  time.Duration

	mu      sync.Mutex
	items   []T
	spare   []T         // the memory of the batch before
	due     bool        // what is gathered is not to wait any longer
	timer   *time.Timer // one for all batches
	busy    bool        // run is under way
	idle    bool        // and waits for more to do
	taken   bool        // Run flushes
	one     [1]T        // what it flushes
	several bool        // the batch before had more than one item
	more    chan struct{}
	ends    int        // calls of Wait: run is not to stay
	quiet   *sync.Cond // busy has ended
}

// stay is how long run waits for more to do.
const stay = time.Second

// New returns a Group that calls flush, one call at a time, with at most max
// items, no later than wait after the first of them was added. What flush is
// given it must not keep.
func New[T any](max int, wait time.Duration, flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, wait: wait}
	g.loop = g.run
	g.more = make(chan struct{}, 1)
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

// Run flushes item at once, alone and in the caller's goroutine, unless a flush is
// under way, something is gathered, or the last batch was shared; it reports
// whether it did. So whoever comes when there is nobody to share with pays for no
// goroutine, and those who are many go on sharing.
func (g *Group[T]) Run(item T) bool {
	if !g.enter(item) {
		return false
	}
	defer g.exit()
	g.flush(g.one[:])
	return true
}

func (g *Group[T]) enter(item T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken || g.busy && !g.idle || len(g.items) > 0 || g.several || g.ends > 0 {
		return false
	}
	g.taken, g.one[0] = true, item
	return true
}

// exit lets others go on, who have come meanwhile.
func (g *Group[T]) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none T
	g.taken, g.one[0] = false, none
	if g.due {
		g.start()
	}
	g.quiet.Broadcast()
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
	switch {
	case g.taken: // exit starts it
	case !g.busy:
		g.busy = true
		go g.loop()
	case g.idle:
		g.wake()
	}
}

func (g *Group[T]) wake() {
	g.idle = false
	g.more <- struct{}{}
}

// Wait flushes and returns when nothing is left.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends++
	defer func() { g.ends-- }()
	for g.busy || g.taken || len(g.items) > 0 {
		if len(g.items) > 0 {
			g.start()
		} else if g.idle {
			g.wake()
		}
		g.quiet.Wait()
	}
}

// run flushes what is due, until nothing has been for a while.
func (g *Group[T]) run() {
	idle := time.NewTimer(stay)
	defer idle.Stop()
	several := true // in the batch before
	for {
		if g.wait == 0 && several {
			runtime.Gosched() // those who are about to add something share the flush
		}
		batch, stop := g.take()
		if batch != nil {
			several = len(batch) > 1
		}
		switch {
		case stop:
			return
		case batch == nil:
			idle.Reset(stay)
			select {
			case <-g.more:
			case <-idle.C:
				if g.leave() {
					return
				}
				<-g.more
			}
		default:
			g.flush(batch)
			g.giveBack(batch)
		}
	}
}

// take returns the next batch; nil if there is none, and then whether to stop.
func (g *Group[T]) take() (batch []T, stop bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken || !g.due || len(g.items) == 0 {
		g.due = g.taken && g.due // then exit comes back to it
		g.idle = g.ends == 0
		if !g.idle {
			g.end()
		}
		return nil, !g.idle
	}
	n := min(len(g.items), g.max)
	g.several = n > 1
	batch = g.items[:n:n]
	g.items = append(g.spare[:0], g.items[n:]...)
	g.spare = nil
	g.due = g.wait == 0 || len(g.items) >= g.max
	if !g.due && len(g.items) > 0 {
		g.timer.Reset(g.wait)
	}
	return batch, false
}

// leave ends run unless it was woken just now.
func (g *Group[T]) leave() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.idle {
		return false
	}
	g.idle = false
	g.end()
	return true
}

func (g *Group[T]) end() {
	g.busy = false
	g.quiet.Broadcast()
}

// giveBack keeps the memory of a flushed batch for a later one.
func (g *Group[T]) giveBack(batch []T) {
	clear(batch)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spare = batch[:0]
}
