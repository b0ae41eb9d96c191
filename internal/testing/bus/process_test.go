package bus_test

import (
	"context"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A process is the backend of a process that can be frozen, and that can die. While it is
// frozen, its calls wait; a call whose context has ended meanwhile is not made. After its death no
// call has an effect.
type process struct {
	backend.Backend

	mu     sync.Mutex
	frozen chan struct{} // closed when it goes on; nil: it is not frozen
	dead   bool
}

func (p *process) Unwrap() backend.Backend { return p.Backend }

// Close leaves the backend to the other processes.
func (p *process) Close() error { return nil }

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.thaw()
}

// wait waits while the process is frozen, and reports whether it lives.
func (p *process) wait() bool {
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

// call calls f, as soon as the process goes on.
func (p *process) call(ctx context.Context, f func() error) error {
	if !p.wait() {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f()
}

func (p *process) Publish(ctx context.Context, ms []*backend.Message) error {
	return p.call(ctx, func() error { return p.Backend.Publish(ctx, ms) })
}

func (p *process) Read(ctx context.Context, topic string, from backend.Start, most int) (ms []backend.Message, err error) {
	err = p.call(ctx, func() error {
		ms, err = backend.Read(ctx, p.Backend, topic, from, most)
		return err
	})
	return ms, err
}

func (p *process) Remove(ctx context.Context, topic string, positions []string) error {
	return p.call(ctx, func() error { return backend.Remove(ctx, p.Backend, topic, positions) })
}

func (p *process) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	var s backend.Source
	err := p.call(ctx, func() (err error) {
		s, err = p.Backend.Attach(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &processSource{s, p}, nil
}

type processSource struct {
	next backend.Source
	p    *process
}

func (s *processSource) Receive(ctx context.Context, most int, bytes int64) (ds []backend.Delivery, err error) {
	err = s.p.call(ctx, func() error {
		ds, err = s.next.Receive(ctx, most, bytes)
		return err
	})
	if !s.p.wait() {
		return nil, backend.ErrClosed
	}
	return ds, err
}

func (s *processSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.p.call(ctx, func() error { return s.next.Ack(ctx, ds) })
}

func (s *processSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	return s.p.call(ctx, func() error { return s.next.(backend.Delayer).Delay(ctx, ds) })
}

func (s *processSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.p.call(ctx, func() error { return s.next.(backend.Extender).Extend(ctx, ds) })
}

func (s *processSource) Close() error { return s.next.Close() }
