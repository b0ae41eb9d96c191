// Package limiter decides how many messages a subscription may take from its backend. It
// is back-pressure: the bus asks a Limiter before it reads.
package limiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Limiter grants places. The bus asks for a place before it reads a message, and gives
// the place back when the message is settled. A Limiter is safe for concurrent use.
// Subscriptions that are given the same Limiter share its places. A limiter may keep the
// places of settled messages, as one of rate does; unused places return at once.
type Limiter interface {
	// Acquire waits until there is a place. It grants at least one place and at most
	// max. When ctx is done it waits no longer: it grants the places that are free, and
	// if there are none it fails with context.Cause(ctx).
	Acquire(ctx context.Context, max int) (int, error)

	// Fill reports that n granted places now hold messages of so many bytes.
	Fill(n int, bytes int64)

	// Release gives places back, never more than were granted.
	Release(Released)
}

// Released says which places are given back, and how they were used. An adaptive limiter
// learns from it.
type Released struct {
	Unused int // granted, but no message came

	Settled int           // held a message
	Bytes   int64         // of those messages, as told to Fill
	Failed  int           // of Settled: the handler failed
	Took    time.Duration // of Settled: handler time, added up
}

// MaxInFlight returns a limiter of n places. n must be positive.
func MaxInFlight(n int) Limiter {
	if n < 1 {
		panic("limiter: MaxInFlight needs a positive number")
	}
	return newPool(n, 0)
}

// MaxBytes returns a limiter that grants places while the messages held are
// below n bytes. Sizes are known only after a read, so one read may exceed n. A read asks
// for as many messages of the largest size seen so far as fit in the rest. The first read
// of a subscription asks for one message. n must be positive.
func MaxBytes(n int64) Limiter {
	if n < 1 {
		panic("limiter: MaxBytes needs a positive number")
	}
	return newPool(0, n)
}

// Both limits messages and bytes; bytes of zero or less means no bound on them.
func Both(messages int, bytes int64) Limiter {
	if messages < 1 {
		panic("limiter: Both needs a positive number of messages")
	}
	return newPool(messages, max(bytes, 0))
}

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
