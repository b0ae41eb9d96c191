// Package pool lends objects that only one caller at a time may use, such as connections.
package pool

import (
	"context"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Pool lends idle objects. If none is idle and it has fewer objects than its size, it
// makes one. Its methods are safe for concurrent use.
type Pool[T comparable] struct {
	create func() T
	free   func(T)
	places chan struct{}
	ending sync.Mutex // the right to wait in Close, because the wait takes all places

	mu     sync.Mutex
	idle   []T // a stack: the object used last is reused first
	lent   map[T]struct{}
	closed bool
}

// New returns a pool of at most size objects, which it makes with create and ends with free.
// Both functions must return soon, because the pool calls them with its lock.
func New[T comparable](size int, create func() T, free func(T)) *Pool[T] {
	return &Pool[T]{create: create, free: free, places: make(chan struct{}, size), lent: map[T]struct{}{}}
}

// Get waits for an object until ctx is done. The caller returns it with Put. Get returns the
// error of ctx, or [backend.ErrClosed].
func (p *Pool[T]) Get(ctx context.Context) (one T, err error) {
	select {
	case p.places <- struct{}{}:
	default:
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return one, ctx.Err()
		}
	}
	if one, err = p.take(); err != nil {
		<-p.places
	}
	return one, err
}

// TryGet is like Get, but returns false instead of waiting, and after Close.
func (p *Pool[T]) TryGet() (one T, ok bool) {
	select {
	case p.places <- struct{}{}:
	default:
		return one, false
	}
	one, err := p.take()
	if err != nil {
		<-p.places
	}
	return one, err == nil
}

// take lends an idle object, or else a new one.
func (p *Pool[T]) take() (one T, err error) {
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
	<-p.places
}

// Close frees the idle objects now, and each lent object when Put returns it. From then on
// Get fails. If cut is not nil, Close calls it for each lent object, to end its use, and
// waits until all are returned. Concurrent calls of Close wait for each other.
func (p *Pool[T]) Close(cut func(T)) {
	p.mu.Lock()
	p.closed = true
	for _, one := range p.idle {
		p.free(one)
	}
	p.idle = nil
	if cut != nil {
		for one := range p.lent {
			cut(one)
		}
	}
	p.mu.Unlock()
	if cut == nil {
		return
	}
	p.ending.Lock()
	defer p.ending.Unlock()
	for range cap(p.places) {
		p.places <- struct{}{}
	}
	for range cap(p.places) {
		<-p.places
	}
}
