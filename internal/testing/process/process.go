// Package process simulates a process of which a test can freeze, cut off and kill the backend.
package process

import (
	"context"
	"errors"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Process is the backend as one process sees it. While the process is frozen, its calls wait;
// a call whose context has ended by then is not made. While it is cut off from the broker, its
// calls fail. After its death no call has an effect.
type Process struct {
	backend.Backend

	mu     sync.Mutex
	frozen chan struct{} // closed when it continues; nil: it is not frozen
	cut    bool
	dead   bool
}

// Unwrap returns the backend.
func (p *Process) Unwrap() backend.Backend { return p.Backend }

// Close does nothing: the backend belongs to the other processes too.
func (p *Process) Close() error { return nil }

// Freeze freezes the process.
func (p *Process) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw lets a frozen process continue.
func (p *Process) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// Cut cuts the process off from the broker, or connects it again.
func (p *Process) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *Process) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

// Die ends the process without warning.
func (p *Process) Die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.Thaw()
}

// Wait waits while the process is frozen, and reports whether it is alive.
func (p *Process) Wait() bool {
	for {
		p.mu.Lock()
		frozen, dead := p.frozen, p.dead
		p.mu.Unlock()
		if frozen == nil {
			return !dead
		}
		<-frozen
	}
}

// call calls f once the process is not frozen.
func (p *Process) call(ctx context.Context, f func() error) error {
	if !p.Wait() {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.isCut() {
		return backend.ErrUnavailable
	}
	return f()
}

// Publish implements the method of the backend.
func (p *Process) Publish(ctx context.Context, ms []*backend.Message) error {
	return p.call(ctx, func() error { return p.Backend.Publish(ctx, ms) })
}

// Read implements the method of the backend.
func (p *Process) Read(ctx context.Context, topic string, from backend.Start, limit int) (ms []backend.Message, err error) {
	err = p.call(ctx, func() error {
		ms, err = backend.Read(ctx, p.Backend, topic, from, limit)
		return err
	})
	return ms, err
}

// Remove implements the method of the backend.
func (p *Process) Remove(ctx context.Context, topic string, positions []string) error {
	return p.call(ctx, func() error { return backend.Remove(ctx, p.Backend, topic, positions) })
}

// Attach implements the method of the backend.
func (p *Process) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	var s backend.Source
	err := p.call(ctx, func() (err error) {
		s, err = p.Backend.Attach(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &source{s, p}, nil
}

type source struct {
	next backend.Source
	p    *Process
}

func (s *source) Receive(ctx context.Context, limit int, bytes int64) (ds []backend.Delivery, err error) {
	err = s.p.call(ctx, func() error {
		ds, err = s.next.Receive(ctx, limit, bytes)
		return err
	})
	if !s.p.Wait() {
		return nil, backend.ErrClosed
	}
	if s.p.isCut() {
		return nil, backend.ErrUnavailable
	}
	return ds, err
}

func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.p.call(ctx, func() error { return s.next.Ack(ctx, ds) })
}

func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	v, ok := backend.As[backend.Delayer](s.next)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.p.call(ctx, func() error { return v.Delay(ctx, ds) })
}

func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	v, ok := backend.As[backend.Extender](s.next)
	if !ok {
		return errors.ErrUnsupported
	}
	return s.p.call(ctx, func() error { return v.Extend(ctx, ds) })
}

func (s *source) Close() error { return s.next.Close() }
