package boltbackend

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Backend is one user of a [Store].
type Backend struct {
	store *Store

	mu      sync.Mutex // guards all that follows
	sources map[*source]struct{}
	closed  bool
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Declarer   = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
	_ backend.Limited    = (*Backend)(nil)
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Clocker    = (*Backend)(nil)
)

// New returns a backend on a store. Close leaves the store open.
func New(s *Store) *Backend { return &Backend{store: s, sources: map[*source]struct{}{}} }

// Limits implements [backend.Limited]. There is one writer at a time, so the bus gathers
// events for the next call of Publish while one call writes.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Payload:    maxMessage,
		OnceWindow: b.store.options.OnceWindow,
		Refund:     true,
		FencedAcks: true,
		Instances:  true,
		Publishers: 1,
	}
}

// Publish implements [backend.Backend]. It is one transaction, and one write to the disk,
// for all messages. A message that is refused does not keep the others from being stored.
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	errs := make([]error, len(msgs))
	err := b.update(ctx, "publish", func(t *txn) error {
		for i, m := range msgs {
			topic, err := t.makeTopic(m.Topic)
			if err != nil {
				return err
			}
			errs[i] = failed("publish "+m.Topic, topic.store(m, b.store.options))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, m := range msgs {
		if i == 0 || m.Topic != msgs[i-1].Topic {
			b.store.wake(m.Topic)
		}
	}
	return backend.AsBatchError(errs)
}

// Declare implements [backend.Declarer].
func (b *Backend) Declare(ctx context.Context, topic string) error {
	return b.update(ctx, "declare "+topic, func(t *txn) error {
		_, err := t.makeTopic(topic)
		return err
	})
}

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	return b.view(ctx, "ping", func(*txn) error { return nil })
}

// Now implements [backend.Clocker].
func (b *Backend) Now(ctx context.Context, _ string) (time.Time, error) {
	return time.Now(), b.Ping(ctx)
}

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s := &source{backend: b, config: c, closed: make(chan struct{})}
	err := b.update(ctx, s.op("attach"), func(t *txn) error {
		if c.Lease <= 0 {
			return fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
		}
		topic, err := t.makeTopic(c.Topic)
		if err != nil {
			return err
		}
		if _, err := topic.group(c.Group); err != nil {
			if err := topic.makeGroup(c.Group, t.unique(), c.Start); err != nil {
				return err
			}
		}
		g, err := topic.group(c.Group)
		if err == nil {
			s.group, s.member = g.identity, t.unique()
			g.join(s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	b.store.wake(c.Topic) // a replaced member may wait
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, failed(s.op("attach"), backend.ErrClosed)
	}
	b.sources[s] = struct{}{}
	b.store.count(s.group, 1)
	return s, nil
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	for s := range b.sources {
		s.end()
	}
	return nil
}

// update runs f in a transaction that may write.
func (b *Backend) update(ctx context.Context, op string, f func(*txn) error) error {
	return failed(op, b.run(ctx, true, f))
}

// view runs f in a transaction that only reads.
func (b *Backend) view(ctx context.Context, op string, f func(*txn) error) error {
	return failed(op, b.run(ctx, false, f))
}

func (b *Backend) run(ctx context.Context, writable bool, f func(*txn) error) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return backend.ErrClosed
	}
	return b.store.run(ctx, writable, f)
}

// failed adds op, the name of the call, to err. It returns nil for nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltbackend: %s: %w", op, err)
}
