// Package batch turns many small calls into few large ones.
package batch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Group gathers items and flushes them together: when there are max of them,
// or a while after the first, or when it is told to. While a flush is under
// way the next batch gathers, so with no wait at all a busy Group still shares
// its flushes. Its methods are safe for concurrent use and never block.
//
// Its goroutines, one for each flush that may be under way, come with the first
// that needs them, stay a second for the next, as a warm stack is worth more than
// a new one, and are gone after Wait. Who adds one item at a time needs none of
// them: see Run.
type Group[T any] struct {
	flush   func([]T)
	loop    func() // run, kept so that starting it allocates nothing
	max     int
	wait    time.Duration
	abreast int // flushes under way at once

	mu      sync.Mutex
	items   []T
	spare   [][]T       // the memory of batches before
	due     bool        // what is gathered is not to wait any longer
	timer   *time.Timer // one for all batches
	flushes int         // under way
	flushed int         // items in them
	fenced  atomic.Bool // no other begins beside them; changes with mu held
	several bool        // the batch before had more than one item, or could have had
	runs    int         // goroutines
	coming  int         // of them, about to take a batch
	idle    int         // of them, waiting for more to do
	more    chan struct{}
	ends    int        // calls of Wait: run is not to stay
	quiet   *sync.Cond // a run or a Run has ended
}

// stay is how long run waits for more to do.
const stay = time.Second

// New returns a Group that calls flush, one call at a time, with at most max
// items, no later than wait after the first of them was added. What flush is
// given it must not keep.
func New[T any](max int, wait time.Duration, flush func([]T)) *Group[T] {
	return NewAbreast(1, max, wait, flush)
}

// NewAbreast is New with up to n calls of flush at a time. Whoever waits for one is
// then not idle meanwhile, but batches are smaller: so a flush begins beside
// others only when as many items have gathered as each of those has, and one that
// others may follow leaves them their share; more than two are under way only
// while there are a few items for each.
func NewAbreast[T any](n, max int, wait time.Duration, flush func([]T)) *Group[T] {
	g := &Group[T]{flush: flush, max: max, wait: wait, abreast: n}
	g.loop = g.run
	g.more = make(chan struct{}, n)
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

// Run flushes item at once, alone and in the caller's goroutine, unless it would
// have to wait for a flush that is under way, something is gathered, or the last
// batch was shared; it reports whether it did. So whoever comes when there is
// nobody to share with pays for no goroutine, and those who are many go on sharing.
func (g *Group[T]) Run(item T) bool {
	batch := g.enter(item)
	if batch == nil {
		return false
	}
	defer g.exit(batch)
	g.flush(batch)
	return true
}

func (g *Group[T]) enter(item T) []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.may(1) || len(g.items) > 0 || g.several || g.ends > 0 {
		return nil
	}
	g.flushes++
	g.flushed++
	return append(g.memory(), item)
}

// exit lets others go on, who have come meanwhile.
func (g *Group[T]) exit(batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(batch)
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

// Fence keeps what is added from now on behind the flushes under way: none begins
// beside them.
func (g *Group[T]) Fence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced.Store(g.flushes > 0)
}

// Fenced reports whether what is added now stays behind flushes under way.
func (g *Group[T]) Fenced() bool { return g.fenced.Load() }

// may reports whether a flush of n items may begin.
func (g *Group[T]) may(n int) bool {
	return g.flushes == 0 || !g.fenced.Load() && g.flushes < g.ways(n) && n*g.flushes >= g.flushed
}

// ways is into how many flushes n items, and those under way, are divided.
func (g *Group[T]) ways(n int) int {
	return min(g.abreast, max(2, (n+g.flushed)/aFew))
}

// aFew is what makes a flush of its own worth while beside two others.
const aFew = 8

// start sees to it that somebody takes what is gathered, now or when a flush has
// ended.
func (g *Group[T]) start() {
	g.due = true
	switch {
	case g.coming > 0 || !g.may(len(g.items)):
	case g.idle > 0:
		g.wake()
	default:
		g.runs++
		g.coming++
		go g.loop()
	}
}

func (g *Group[T]) wake() {
	g.idle--
	g.coming++
	g.more <- struct{}{}
}

// Wait flushes and returns when nothing is left.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends++
	defer func() { g.ends-- }()
	for g.runs > 0 || g.flushes > 0 || len(g.items) > 0 {
		if len(g.items) > 0 {
			g.start()
		}
		for g.idle > 0 {
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
			g.next(batch)
		}
	}
}

// take returns the next batch; nil if none may be flushed, and then whether to
// stop.
func (g *Group[T]) take() (batch []T, stop bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.coming--
	if !g.due || len(g.items) == 0 || !g.may(len(g.items)) {
		g.due = g.due && len(g.items) > 0 // then who flushes comes back to it
		if g.ends > 0 {
			g.stop()
			return nil, true
		}
		g.idle++
		return nil, false
	}
	g.several = len(g.items) > 1
	n := g.share()
	batch, rest := g.items[:n], g.items[n:]
	g.items = append(g.memory(), rest...)
	clear(rest) // it lies in the memory of the batch, which keeps it otherwise
	g.flushes++
	g.flushed += n
	g.due = len(g.items) > 0 && (g.wait == 0 || len(g.items) >= g.max)
	if g.due {
		g.start()
	} else if len(g.items) > 0 {
		g.timer.Reset(g.wait)
	}
	return batch, false
}

// share is how many items the next batch gets.
func (g *Group[T]) share() int {
	n := len(g.items)
	if ways := g.ways(n); g.flushes+1 < ways {
		n = max((n+g.flushed)/ways, 1)
	}
	return min(n, len(g.items), g.max)
}

// memory returns that of a batch before, or none.
func (g *Group[T]) memory() []T {
	last := len(g.spare) - 1
	if last < 0 {
		return nil
	}
	m := g.spare[last]
	g.spare = g.spare[:last]
	return m
}

// next ends a flush of run, which is about to take another batch.
func (g *Group[T]) next(batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(batch)
	g.coming++
}

// end ends a flush, and keeps the memory of its batch for a later one.
func (g *Group[T]) end(batch []T) {
	g.flushes--
	g.flushed -= len(batch)
	if g.flushes == 0 {
		g.fenced.Store(false)
	}
	clear(batch)
	g.spare = append(g.spare, batch[:0])
}

// leave ends run unless it was woken just now.
func (g *Group[T]) leave() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == 0 {
		return false
	}
	g.idle--
	g.stop()
	return true
}

func (g *Group[T]) stop() {
	g.runs--
	g.quiet.Broadcast()
}
