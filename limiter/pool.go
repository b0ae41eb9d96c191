package limiter

import (
	"context"
	"errors"
	"sync"
)

var _ Limiter = (*pool)(nil)

// A pool is a limiter with a bound on places and on bytes. A bound of 0 means no bound.
type pool struct {
	places int
	bytes  int64

	mu      sync.Mutex
	granted int           // granted places that were not given back
	empty   int           // how many of granted hold no message yet
	held    int64         // the total size of the messages in granted places, in bytes
	largest int64         // the largest average size of the messages of one read so far, in bytes
	free    chan struct{} // closed and replaced when a place is given back while a caller waits
	waiting int
}

func newPool(places int, bytes int64) *pool {
	return &pool{places: places, bytes: bytes, free: make(chan struct{})}
}

func (p *pool) Acquire(ctx context.Context, max int) (int, error) {
	for {
		n, free := p.take(max)
		if n > 0 {
			return n, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
		}
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// take reserves at most max places, and returns how many it has reserved. If that is none,
// it also returns a channel that is closed when the caller should try again.
func (p *pool) take(max int) (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(max, p.room())
	if n <= 0 {
		p.waiting++
		return 0, p.free
	}
	p.granted += n
	p.empty += n
	return n, nil
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

// wake lets waiting calls of Acquire try again.
func (p *pool) wake() {
	if p.waiting > 0 {
		close(p.free)
		p.free = make(chan struct{})
	}
}
