package inmemory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A source is one member of a group. The lock of the topic guards all fields except loan,
// which belongs to the caller of Receive.
type source struct {
	group     *group
	lease     time.Duration
	fence     bool          // the member was attached with Config.ConfirmAcks, so Ack is fenced
	lastSeen  time.Time     // when the member was last heard of; see backend.Config.Ephemeral
	receiving bool          // in Receive
	instance  instance      // the process that the member is part of; zero if it has no name
	err       error         // the error of all calls after end; nil before end; see failure
	ended     chan struct{} // closed by end
	loan      slab.Loan     // memory of the deliveries that the last Receive returned
}

// An instance is one incarnation of a process with a name; see [backend.Config].Instance.
type instance struct{ name, incarnation string }

// replaces reports whether i is another incarnation of the same process as old.
func (i instance) replaces(old instance) bool {
	return i.name != "" && i.name == old.name && i.incarnation != old.incarnation
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (_ backend.Source, err error) {
	defer func() { err = failed(err, "attach", c.Topic+"/"+c.Group) }()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	t, err := b.acquire(c.Topic, true)
	if err != nil {
		return nil, err
	}
	defer t.unlock()
	g := t.groups[c.Group]
	if g == nil {
		if g, err = t.newGroup(c.Group, c.Start); err != nil {
			return nil, err
		}
		if g.ephemeral = c.Ephemeral; g.ephemeral {
			t.totals.addEphemeral(g)
		}
	}
	if g.ephemeral != c.Ephemeral {
		return nil, fmt.Errorf("%w: the group exists, and Ephemeral of it is %t", backend.ErrRefused, g.ephemeral)
	}
	s := &source{
		group: g, lease: c.Lease, fence: c.ConfirmAcks, ended: make(chan struct{}),
		instance: instance{c.Instance, c.Incarnation},
	}
	for old := range g.members {
		if s.instance.replaces(old.instance) {
			g.release(old)
			old.end(backend.ErrReplaced)
		}
	}
	g.members[s], s.lastSeen = struct{}{}, time.Now()
	if c.Notify != nil {
		g.notify = c.Notify
	}
	return s, nil
}

// Receive implements [backend.Source]. If ctx is done, it delivers nothing even if messages
// are due. They stay due, so no message is lost.
func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	s.loan.Return()
	ds, err := s.awaitDue(ctx, limit, maxBytes)
	copyPayloads(len(ds), func(i int) *backend.Message { return &ds[i].Message }) // without the lock of the topic
	return ds, failed(err, "receive", s.group.path)
}

// awaitDue waits until messages are due and takes at most limit of them, of at most maxBytes
// together.
func (s *source) awaitDue(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.unlock()
	for s.lastSeen = time.Now(); ; {
		switch {
		case s.failure() != nil:
			return nil, s.failure()
		case ctx.Err() != nil, limit <= 0:
			return nil, ctx.Err()
		}
		if p := g.paused(); !p.Since.IsZero() {
			return nil, &backend.PausedError{Pause: p}
		}
		if ds := g.take(limit, maxBytes, s); len(ds) > 0 {
			return ds, nil
		}
		s.wait(ctx)
	}
}

// wait unlocks the topic, waits until a message may be due, and locks the topic again. It
// also returns when ctx is done or the member has ended.
func (s *source) wait(ctx context.Context) {
	g := s.group
	g.waiting++
	s.receiving = true
	changed := g.changed
	g.topic.unlock()
	select {
	case <-g.wake:
	case <-changed:
	case <-g.timer.C:
	case <-s.ended:
	case <-ctx.Done():
	}
	g.topic.mu.Lock()
	g.waiting--
	s.receiving, s.lastSeen = false, time.Now()
}

// Ack implements [backend.Source]. With Config.ConfirmAcks it is fenced, like Delay.
func (s *source) Ack(_ context.Context, ds []*backend.Delivery) error {
	return s.forEach("ack", len(ds), func(i int, _ time.Time) error {
		e, err := s.entry(ds[i], s.fence)
		if err == nil && !e.settled {
			s.group.settle(e)
		}
		return err
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(_ context.Context, ds []backend.Delayed) error {
	return s.forEach("delay", len(ds), func(i int, now time.Time) error {
		e, err := s.entry(&ds[i].Delivery, true)
		if err != nil {
			return err
		}
		if ds[i].Refund {
			e.attempt--
		}
		e.receipt = nil
		s.group.reschedule(nil, now.Add(max(ds[i].For, 0)), e)
		return nil
	})
}

// Extend implements [backend.Extender]. It also extends a lease that has expired, unless
// the message was redelivered.
func (s *source) Extend(_ context.Context, ds []*backend.Delivery) error {
	return s.forEach("extend", len(ds), func(i int, now time.Time) error {
		e, err := s.entry(ds[i], true)
		s.lastSeen = now
		if err == nil {
			s.group.reschedule(s, now.Add(s.lease), e)
		}
		return err
	})
}

// forEach locks the topic and calls the callback one with each index from 0 to n-1. It
// collects the errors of all callbacks.
func (s *source) forEach(op string, n int, one func(i int, now time.Time) error) error {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.unlock()
	if err := s.failure(); err != nil && !s.replaced() {
		return failed(err, op, g.path)
	}
	now := time.Now()
	var errs backend.BatchError
	for i := range n {
		errs.Set(i, n, failed(one(i, now), op, g.path))
	}
	return backend.AsBatchError(errs)
}

// replaced reports whether s holds nothing, because a later incarnation of its instance has attached.
func (s *source) replaced() bool { return errors.Is(s.failure(), backend.ErrReplaced) }

// entry returns the entry of a delivery. If fenced is set and the member no longer holds
// this delivery, entry returns [backend.ErrLeaseLost].
func (s *source) entry(d *backend.Delivery, fenced bool) (*entry, error) {
	r, ok := d.Token.(*receipt)
	if !ok || r.entry.group.path != s.group.path {
		return nil, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	if r.entry.group != s.group || fenced && (r.entry.receipt != r || s.replaced()) { // the group was deleted and recreated, or the lease is over
		return nil, backend.ErrLeaseLost
	}
	return r.entry, nil
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.group.topic.mu.Lock()
	defer s.group.topic.unlock()
	s.end(backend.ErrClosed)
	s.group.deleteIfEmpty()
	return nil
}

// failure returns the error of all calls after end, or nil before end. After Close of the
// backend it is ErrClosed, even if the topic or the group was deleted before.
func (s *source) failure() error {
	if s.group.topic.totals.closed.Load() {
		return backend.ErrClosed
	}
	return s.err
}

// end removes s from its group. Later calls of s fail with err. Only Close can call it again.
func (s *source) end(err error) {
	if s.err == nil {
		delete(s.group.members, s)
		close(s.ended)
	}
	s.err = err
}
