package bolt

import (
	"context"
	"math"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A source is one member of a group.
type source struct {
	backend *Backend
	config  backend.Config
	group   uint64        // its identity: a group of this name that is made later is another
	member  uint64        // of no other source
	closed  chan struct{} // closed by end
	failed  bool          // the last Receive returned an error; only Receive uses it

	lastSeen  time.Time // when an ephemeral group last heard of this member; guarded by the lock of the store
	receiving bool      // guarded likewise
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// register makes s a source of its backend, unless the backend has been closed in the meantime.
func (s *source) register() error {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return failed(s.op("attach"), backend.ErrClosed)
	}
	b.sources[s] = struct{}{}
	b.store.count(s.group, 1)
	b.store.removeReplaced(s)
	return nil
}

// op names a call in its errors.
func (s *source) op(verb string) string { return verb + " " + s.config.Topic + "/" + s.config.Group }

// Receive implements [backend.Source]. A waiting member checks for messages again whenever its
// topic is woken, and when the next entry is due.
func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	if s.config.Ephemeral {
		s.backend.store.setReceiving(s, true)
		defer s.backend.store.setReceiving(s, false)
	}
	for {
		changed := s.backend.store.whenChanged(s.config.Topic) // before take, so that no wake is missed
		ds, next, err := s.take(ctx, limit, maxBytes)
		again := s.failed && err == nil // the bus detects recovery by a call that returns
		if s.failed = err != nil; err != nil || len(ds) > 0 || limit <= 0 || again {
			return ds, err
		}
		if ctx.Err() != nil {
			return nil, failed(s.op("receive"), ctx.Err())
		}
		select {
		case <-changed:
		case <-time.After(next):
		case <-s.closed:
		case <-ctx.Done():
		}
	}
}

// take delivers due messages. If there are none, it returns how long to wait. A context
// that is done is not a failure of the store, so the transaction does not see it.
func (s *source) take(ctx context.Context, limit int, maxBytes int64) (ds []backend.Delivery, wait time.Duration, err error) {
	if maxBytes <= 0 {
		maxBytes = math.MaxInt64
	}
	var refusal error
	err = s.update(context.WithoutCancel(ctx), "receive", func(g *group) {
		now := time.Now()
		ds, refusal = nil, nil
		switch {
		case s.config.Instance != "" && !g.hasMember(s.member):
			refusal = backend.ErrReplaced
		case ctx.Err() != nil || limit <= 0: // it takes none
		case !g.paused(now).Since.IsZero():
			refusal = &backend.PausedError{Pause: g.pause}
		default:
			ds = g.take(limit, maxBytes, now, s)
		}
		wait = g.wait(now)
	})
	if err == nil && refusal != nil {
		err = failed(s.op("receive"), refusal)
	}
	if err != nil {
		return nil, 0, err // messages of a failed commit are redelivered when their lease expires
	}
	return ds, wait, nil
}

// Ack implements [backend.Source]. With ConfirmAcks it is fenced.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.forEach(ctx, "ack", len(ds), func(g *group, i int) error {
		e, err := g.claim(ds[i], s.config.ConfirmAcks)
		if err == nil && e.delivery > 0 {
			g.settle(e)
		}
		return err
	})
}

// Extend implements [backend.Extender]. An expired lease can be extended as long as no
// other member has received the message.
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	if s.config.Ephemeral {
		s.backend.store.touch(s)
	}
	return s.forEach(ctx, "extend", len(ds), func(g *group, i int) error {
		e, err := g.claim(ds[i], true)
		if err == nil {
			g.postpone(e, microsAfter(time.Now(), s.config.Lease))
		}
		return err
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	err := s.forEach(ctx, "delay", len(ds), func(g *group, i int) error {
		e, err := g.claim(&ds[i].Delivery, true)
		if err != nil {
			return err
		}
		if ds[i].Refund {
			e.attempt--
		}
		e.held = 0
		g.postpone(e, microsAfter(time.Now(), ds[i].For))
		return nil
	})
	s.backend.store.wake(s.config.Topic)
	return err
}

// forEach calls f for each of n deliveries, in one transaction.
func (s *source) forEach(ctx context.Context, verb string, n int, f func(g *group, i int) error) error {
	errs := make([]error, n)
	err := s.update(ctx, verb, func(g *group) {
		for i := range n {
			errs[i] = failed(s.op(verb), f(g, i))
		}
	})
	if err != nil {
		return err
	}
	return backend.AsBatchError(errs)
}

// update runs f with the group, in a transaction that may write. A closed source returns
// ErrClosed first.
func (s *source) update(ctx context.Context, verb string, f func(*group)) error {
	select {
	case <-s.closed:
		return failed(s.op(verb), backend.ErrClosed)
	default:
	}
	return s.backend.update(ctx, s.op(verb), func(t *txn) error {
		g, err := t.find(s.config.Topic, s.config.Group)
		if err != nil {
			return err
		}
		if g.identity != s.group {
			return backend.ErrGone
		}
		f(g)
		return nil
	})
}

// Close implements [backend.Source]. Messages that the member holds are due when their
// leases expire. The last member of an ephemeral group deletes the group.
func (s *source) Close() error {
	s.backend.mu.Lock()
	_, open := s.backend.sources[s]
	if open {
		s.end()
	}
	s.backend.mu.Unlock()
	if open && s.config.Ephemeral {
		return failed(s.op("close"), s.backend.store.deleteExpired())
	}
	return nil
}

// end leaves the group. The backend's lock is held.
func (s *source) end() {
	delete(s.backend.sources, s)
	s.backend.store.count(s.group, -1)
	s.backend.store.removeMember(s)
	close(s.closed)
}
