// Package pool lends objects that only one caller at a time may use, such as connections.
package pool

import (
	"context"
	"errors"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Pool lends idle objects. If none is idle and it has fewer objects than its size, it
// creates one. Its methods are safe for concurrent use.
type Pool[T comparable] struct {
	create func() (T, error)
	free   func(T) error
	places chan struct{}

	mu     sync.Mutex
	idle   []T // a stack: the object used last is reused first
	lent   map[T]struct{}
	closed bool
	errs   []error // the errors that free returned
}

// New returns a pool of at most size objects, which it makes with create and ends with free.
func New[T comparable](size int, create func() (T, error), free func(T) error) *Pool[T] {
	return &Pool[T]{create: create, free: free, places: make(chan struct{}, size), lent: map[T]struct{}{}}
}

// Get waits for an object until ctx is done. The caller returns it with Put. Get returns the
// error of ctx or of create, or [backend.ErrClosed].
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
	one, ok, err := p.take()
	if !ok && err == nil {
		if one, err = p.create(); err == nil {
			err = p.lend(one)
		}
	}
	if err != nil {
		<-p.places
		var none T
		return none, err
	}
	return one, nil
}

// Idle returns an idle object, if there is one, without waiting.
func (p *Pool[T]) Idle() (one T, ok bool) {
	select {
	case p.places <- struct{}{}:
	default:
		return one, false
	}
	one, ok, _ = p.take()
	if !ok {
		<-p.places
	}
	return one, ok
}

// take lends an idle object, if there is one.
func (p *Pool[T]) take() (one T, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return one, false, backend.ErrClosed
	}
	n := len(p.idle)
	if n == 0 {
		return one, false, nil
	}
	one, p.idle = p.idle[n-1], p.idle[:n-1]
	p.lent[one] = struct{}{}
	return one, true, nil
}

// lend registers a new object as lent.
func (p *Pool[T]) lend(one T) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.errs = append(p.errs, p.free(one))
		return backend.ErrClosed
	}
	p.lent[one] = struct{}{}
	return nil
}

// Put returns a lent object to the pool, or frees it if the pool is closed.
func (p *Pool[T]) Put(one T) {
	p.mu.Lock()
	delete(p.lent, one)
	if p.closed {
		p.errs = append(p.errs, p.free(one))
	} else {
		p.idle = append(p.idle, one)
	}
	p.mu.Unlock()
	<-p.places
}

// Close frees the idle objects now, and each lent object when Put returns it. From then on
// Get fails. If cut is not nil, Close calls it for each lent object, to end its use, and
// waits until all are returned. Close returns the errors of free.
func (p *Pool[T]) Close(cut func(T)) error {
	p.mu.Lock()
	p.closed = true
	for _, one := range p.idle {
		p.errs = append(p.errs, p.free(one))
	}
	p.idle = nil
	if cut != nil {
		for one := range p.lent {
			cut(one)
		}
	}
	p.mu.Unlock()
	if cut != nil {
		for range cap(p.places) {
			p.places <- struct{}{}
		}
		for range cap(p.places) {
			<-p.places
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}
