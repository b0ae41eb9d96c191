package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
)

var _ Limiter = (*pool)(nil)

// A pool is a limiter with a bound on places and on bytes. A bound of 0 means no bound. It
// grants places to callers in the order of their calls. Otherwise a subscription that waits
// for messages of an empty topic could take back the same places again and again.
type pool struct {
	places int
	bytes  int64

	mu      sync.Mutex
	granted int       // granted places that were not given back
	empty   int       // how many of granted hold no message yet
	held    int64     // the total size of the messages in granted places, in bytes
	largest int64     // the largest average size of the messages of one read so far, in bytes
	line    []*waiter // the calls of Acquire that wait, in order; while there are any, no place is free
}

// A waiter is a call of Acquire that waits for at most max places.
type waiter struct {
	max  int
	gets chan int // gets the number of granted places
}

func newPool(places int, bytes int64) *pool { return &pool{places: places, bytes: bytes} }

func (p *pool) Acquire(ctx context.Context, max int) (int, error) {
	n, w := p.take(max)
	if n > 0 {
		return n, nil
	}
	select {
	case n := <-w.gets:
		return n, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.line, w); at >= 0 {
		p.line = slices.Delete(p.line, at, at+1)
		return 0, context.Cause(ctx)
	}
	return <-w.gets, nil // granted just now
}

// take grants at most max places, or adds a waiter to the line.
func (p *pool) take(max int) (int, *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.grant(max); n > 0 {
		return n, nil
	}
	w := &waiter{max: max, gets: make(chan int, 1)}
	p.line = append(p.line, w)
	return 0, w
}

// grant grants at most max places, as many as are free. The caller holds mu.
func (p *pool) grant(max int) int {
	n := min(max, p.room())
	if n > 0 {
		p.granted += n
		p.empty += n
	}
	return n
}

// resize changes the bound on places. Granted places stay granted.
func (p *pool) resize(places int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places = places
	p.wake()
}

// filled returns how many places hold messages.
func (p *pool) filled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted - p.empty
}

// room returns how many places may be granted now. The caller holds mu.
func (p *pool) room() int {
	n := int(^uint(0) >> 1)
	if p.places > 0 {
		n = p.places - p.granted
	}
	if p.bytes == 0 {
		return n
	}
	// Before the first message, each call gets one place. It does not wait for the first
	// message of another caller.
	if p.largest == 0 && p.held == 0 {
		return min(n, 1)
	}
	// Count the empty places too, because they will hold messages.
	size := max(p.largest, 1)
	left := p.bytes - p.held - int64(p.empty)*size
	if left <= 0 {
		if p.held == 0 && p.empty == 0 {
			return min(n, 1)
		}
		return 0
	}
	return int(min(int64(n), max(left/size, 1)))
}

func (p *pool) Fill(n int, bytes int64) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.empty -= n
	p.held += bytes
	p.largest = max(p.largest, (bytes+int64(n)-1)/int64(n))
	p.wake() // there may be more room, if the messages are smaller than p.largest
}

func (p *pool) Release(r Released) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted -= r.Unused + r.Settled
	p.empty -= r.Unused
	p.held -= r.Bytes
	if p.granted < 0 || p.empty < 0 || p.held < 0 {
		panic(errors.New("limiter: more released than granted"))
	}
	p.wake()
}

// wake grants the free places to the calls that wait, in order. The caller holds mu.
func (p *pool) wake() {
	for len(p.line) > 0 {
		n := p.grant(p.line[0].max)
		if n <= 0 {
			return
		}
		p.line[0].gets <- n
		p.line = slices.Delete(p.line, 0, 1)
	}
}
