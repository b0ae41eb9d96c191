package limiter

import (
	"context"
	"errors"
	"sync"
)

var _ Limiter = (*pool)(nil)

// pool counts places and bytes. A bound of 0 means none.
type pool struct {
	places int
	bytes  int64

	mu      sync.Mutex
	granted int           // places given out
	empty   int           // of granted: not filled yet
	held    int64         // bytes of the filled ones
	largest int64         // message seen
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

// take grants up to max, or returns a channel to wait for.
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

// resize changes the number of places. Places beyond it are not taken back.
func (p *pool) resize(places int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places = places
	p.wake()
}

// filled is how many places hold messages.
func (p *pool) filled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted - p.empty
}

// room is how many places may be granted now.
func (p *pool) room() int {
	n := int(^uint(0) >> 1)
	if p.places > 0 {
		n = p.places - p.granted
	}
	if p.bytes == 0 {
		return n
	}
	if p.largest == 0 && p.held == 0 { // each caller gets one, and none waits for the first message of another
		return min(n, 1)
	}
	// Places that are granted and empty will hold messages too.
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
	p.wake() // the messages may be smaller than the largest
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

// wake lets waiting callers look again.
func (p *pool) wake() {
	if p.waiting > 0 {
		close(p.free)
		p.free = make(chan struct{})
	}
}
