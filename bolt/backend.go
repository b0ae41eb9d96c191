package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Backend keeps topics in a file. Close closes the file unless another Backend of this process
// uses it.
type Backend struct {
	store   *store
	options Options

	mu      sync.Mutex // guards all that follows
	sources map[*source]struct{}
	closed  bool
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Identified = (*Backend)(nil)
	_ backend.Declarer   = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
	_ backend.Limited    = (*Backend)(nil)
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Clocker    = (*Backend)(nil)
	_ backend.Pauser     = (*Backend)(nil)
	_ backend.Settler    = (*Backend)(nil)
)

// newBackend returns a backend on a store whose users already include it.
func newBackend(s *store, o Options) *Backend {
	return &Backend{store: s, options: o.withDefaults(), sources: map[*source]struct{}{}}
}

// Identity implements [backend.Identified]. The address is the path of the file.
func (b *Backend) Identity() backend.Identity {
	return backend.Identity{System: "bolt", Address: b.store.path}
}

// Limits implements [backend.Limited]. There is one writer at a time, so the bus collects events for
// the next Publish while one is writing.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Payload:    maxMessage,
		OnceWindow: b.options.OnceWindow,
		Refund:     true,
		FencedAcks: true,
		Instances:  true,
		Ephemeral:  true,
		Settings:   backend.Supported{Keep: true, MaxMessages: true, MaxBytes: true},
		Publishers: 1,
	}
}

// Publish implements [backend.Backend]. It shares a transaction with concurrent calls. A message
// that is refused does not keep the others from being stored.
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	errs := make([]error, len(msgs))
	err := b.update(ctx, "publish", func(t *txn) error {
		for i, m := range msgs {
			topic, err := t.makeTopic(m.Topic)
			if err != nil {
				return err
			}
			errs[i] = failed("publish "+m.Topic, topic.store(m, b.options))
		}
		return nil
	})
	for i, m := range msgs { // even after an error, because a failed commit may be in the file
		if i == 0 || m.Topic != msgs[i-1].Topic {
			b.store.wake(m.Topic)
		}
	}
	if err != nil {
		return err
	}
	return backend.AsBatchError(errs)
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
		b.store.removeMember(s) // of a transaction that was rolled back
		if c.Lease <= 0 {
			return fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
		}
		topic, err := t.makeTopic(c.Topic)
		if err != nil {
			return err
		}
		if _, err := topic.group(c.Group); err != nil {
			if err := topic.makeGroup(c.Group, t.unique(), groupAttributes{ephemeral: c.Ephemeral}, c.Start); err != nil {
				return err
			}
		}
		g, err := topic.group(c.Group)
		if err == nil && g.ephemeral != c.Ephemeral {
			err = fmt.Errorf("%w: the group exists, and Ephemeral of it is %t", backend.ErrRefused, g.ephemeral)
		}
		if err == nil {
			s.group, s.member = g.identity, t.unique()
			g.join(s)
		}
		return err
	})
	if err == nil {
		err = s.register()
	}
	if err != nil {
		b.store.removeMember(s)
		return nil, err
	}
	b.store.wake(c.Topic) // a replaced member may wait
	return s, nil
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	before := b.closed
	b.closed = true
	for s := range b.sources {
		s.end()
	}
	b.mu.Unlock()
	if before {
		return nil
	}
	return failed("close", errors.Join(b.store.deleteExpired(), b.store.release()))
}

// update runs f in a transaction that may write. f may run twice, so it sets all its results.
func (b *Backend) update(ctx context.Context, op string, f func(*txn) error) error {
	if isClosed(b) {
		return failed(op, backend.ErrClosed)
	}
	return failed(op, b.store.update(ctx, f))
}

// view runs f in a transaction that only reads.
func (b *Backend) view(ctx context.Context, op string, f func(*txn) error) error {
	if isClosed(b) {
		return failed(op, backend.ErrClosed)
	}
	return failed(op, b.store.view(ctx, f))
}

func isClosed(b *Backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// failed adds op, the name of the call, to err. It returns nil for nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bolt: %s: %w", op, err)
}
