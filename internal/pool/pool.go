// Package pool lends what one call at a time can use, such as a connection.
package pool

import (
	"context"
	"errors"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Pool makes as many as are lent at the same time, up to its size. Its methods
// are safe for concurrent use.
type Pool[T comparable] struct {
	create func() (T, error)
	free   func(T) error
	places chan struct{}

	mu     sync.Mutex
	idle   []T // the one used last is last, and comes first
	lent   map[T]struct{}
	closed bool
	errs   []error // of free
}

// New returns a pool of at most so many.
func New[T comparable](size int, create func() (T, error), free func(T) error) *Pool[T] {
	return &Pool[T]{create: create, free: free, places: make(chan struct{}, size), lent: map[T]struct{}{}}
}

// Get waits for one until ctx is done. It is to be given back with Put. The error
// is that of ctx or of making one, or [backend.ErrClosed].
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
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	switch {
	case p.closed:
		err = backend.ErrClosed
	case n > 0:
		one, p.idle = p.idle[n-1], p.idle[:n-1]
	default:
		one, err = p.create()
	}
	if err != nil {
		<-p.places
		return one, err
	}
	p.lent[one] = struct{}{}
	return one, nil
}

// Put takes one back.
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

// Close lends no more, and frees those that are here; the others when they come
// back. With cut it does not leave it at that: it calls that for each that is
// lent, which ends what is done with it, and waits until all are back. It returns
// the errors of freeing.
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
