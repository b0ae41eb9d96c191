// Package pool lends objects that one caller at a time may use, such as connections.
package pool

import (
	"context"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Pool lends idle objects. If none is idle and the pool is not full, it makes a new one. It is
// safe for concurrent use.
type Pool[T comparable] struct {
	create  func() T
	free    func(T)
	slots   chan struct{}
	closing sync.Mutex // held while Close waits, because waiting takes all slots

	mu     sync.Mutex
	idle   []T // a stack: the object used last is lent first
	lent   map[T]struct{}
	closed bool
}

// New returns a pool of at most size objects, which it makes with create and disposes of with
// free. Both functions must return soon, because the pool holds its lock while it calls them.
func New[T comparable](size int, create func() T, free func(T)) *Pool[T] {
	return &Pool[T]{create: create, free: free, slots: make(chan struct{}, size), lent: map[T]struct{}{}}
}

// Get returns an object, and waits for one until ctx is done. Return it with Put. The error is
// that of ctx, or [backend.ErrClosed] after Close.
func (p *Pool[T]) Get(ctx context.Context) (one T, err error) {
	select {
	case p.slots <- struct{}{}:
	default:
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return one, ctx.Err()
		}
	}
	if one, err = p.lend(); err != nil {
		<-p.slots
	}
	return one, err
}

// TryGet is like Get, but returns false instead of waiting, and after Close.
func (p *Pool[T]) TryGet() (one T, ok bool) {
	select {
	case p.slots <- struct{}{}:
	default:
		return one, false
	}
	one, err := p.lend()
	if err != nil {
		<-p.slots
	}
	return one, err == nil
}

// lend lends an idle object, or otherwise a new one.
func (p *Pool[T]) lend() (one T, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return one, backend.ErrClosed
	}
	if last := len(p.idle) - 1; last >= 0 {
		one, p.idle = p.idle[last], p.idle[:last]
	} else {
		one = p.create()
	}
	p.lent[one] = struct{}{}
	return one, nil
}

// Put returns a lent object to the pool, or frees it if the pool is closed.
func (p *Pool[T]) Put(one T) {
	p.mu.Lock()
	delete(p.lent, one)
	if p.closed {
		p.free(one)
	} else {
		p.idle = append(p.idle, one)
	}
	p.mu.Unlock()
	<-p.slots
}

// Close frees the idle objects at once, and each lent object when Put returns it. From then on
// Get fails. If interrupt is not nil, Close calls it for each lent object to end its use, and
// waits until all of them are returned. Concurrent calls of Close wait for each other.
func (p *Pool[T]) Close(interrupt func(T)) {
	p.mu.Lock()
	p.closed = true
	for _, one := range p.idle {
		p.free(one)
	}
	p.idle = nil
	if interrupt != nil {
		for one := range p.lent {
			interrupt(one)
		}
	}
	p.mu.Unlock()
	if interrupt == nil {
		return
	}
	p.closing.Lock()
	defer p.closing.Unlock()
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	for range cap(p.slots) {
		<-p.slots
	}
}
