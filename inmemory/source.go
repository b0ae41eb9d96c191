package inmemory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A source is one member of a group.
type source struct {
	group *group
	lease time.Duration
	fence bool          // it acknowledges only what it holds
	err   error         // why it ended; guarded by the topic's mutex
	done  chan struct{} // closed when it ended
	loan  slab.Loan     // of what the last read brought
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

func (g *group) join(lease time.Duration, fence bool) *source {
	s := &source{group: g, lease: lease, fence: fence, done: make(chan struct{})}
	g.members[s] = struct{}{}
	return s
}

// Receive implements [backend.Source]. Nothing is ever on its way: if ctx is
// done it hands out nothing, even if something is due.
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	ds, err := s.await(ctx, limit)
	if err != nil {
		return nil, err
	}
	for i := range ds {
		own(&ds[i].Message)
	}
	return ds, nil
}

// await returns as soon as something was taken. It always passes on what it
// leaves: it may have been woken in place of another.
func (s *source) await(ctx context.Context, limit int) ([]backend.Delivery, error) {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	s.loan.Return()
	for {
		err := ctx.Err()
		if s.err != nil {
			err = s.fail("receive", s.err)
		}
		if err != nil || limit <= 0 {
			g.alert(g.topic.clock.now())
			return nil, err
		}
		if ds := g.take(&s.loan, limit, s.lease); ds != nil {
			return ds, nil
		}
		s.wait(ctx)
	}
}

// wait gives up the lock until there may be something to take.
func (s *source) wait(ctx context.Context) {
	g := s.group
	g.waiting++
	g.alert(g.topic.clock.now())
	g.topic.mu.Unlock()
	rang := false
	select {
	case <-g.wake:
	case <-g.timer.C:
		rang = true
	case <-s.done:
	case <-ctx.Done():
	}
	g.topic.mu.Lock()
	g.waiting--
	if rang {
		g.alarm = never
	}
}

// Ack implements [backend.Source]. With ConfirmAcks it is fenced, as Delay is.
func (s *source) Ack(_ context.Context, ds []*backend.Delivery) error {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	if s.err != nil {
		return s.fail("ack", s.err)
	}
	var errs itemErrors
	settled := int64(0)
	for i := range ds {
		r, ok := ds[i].Token.(*receipt)
		switch {
		case !ok || r.group != g:
			errs.set(i, len(ds), s.fail("ack", fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)))
		case s.fence && s.holding(ds[i]) == nil:
			errs.set(i, len(ds), s.fail("ack", backend.ErrLeaseLost))
		default:
			if e := g.entry(r); e != nil {
				g.settle(e)
				settled++
			}
		}
	}
	g.topic.trim()
	g.topic.ledger.owe(-settled)
	return backend.AsBatchError(errs)
}

// Delay implements [backend.Delayer].
func (s *source) Delay(_ context.Context, ds []backend.Delayed) error {
	return s.move("delay", len(ds), func(i int, now moment) bool {
		e := s.holding(&ds[i].Delivery)
		if e == nil {
			return false
		}
		if ds[i].Refund {
			e.attempt--
		}
		s.group.hold(e, false)
		s.group.queue.remove(e)
		s.group.queue.delay(e, after(now, ds[i].For))
		return true
	})
}

// Extend implements [backend.Extender]. A lease that has passed can be extended
// as long as nobody else took the delivery.
func (s *source) Extend(_ context.Context, ds []*backend.Delivery) error {
	return s.move("extend", len(ds), func(i int, now moment) bool {
		e := s.holding(ds[i])
		if e == nil {
			return false
		}
		s.group.queue.remove(e)
		s.group.queue.lease(e, after(now, s.lease))
		return true
	})
}

// move calls one for each of n deliveries. One returns false if the delivery is
// no longer the caller's.
func (s *source) move(op string, n int, one func(i int, now moment) bool) error {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	if s.err != nil {
		return s.fail(op, s.err)
	}
	now := g.topic.clock.now()
	var errs itemErrors
	for i := range n {
		if !one(i, now) {
			errs.set(i, n, s.fail(op, backend.ErrLeaseLost))
		}
	}
	g.alert(now)
	return backend.AsBatchError(errs)
}

// holding returns the entry of d if this receipt of it still holds it.
func (s *source) holding(d *backend.Delivery) *entry {
	r, ok := d.Token.(*receipt)
	if !ok || r.group != s.group {
		return nil
	}
	if e := s.group.entry(r); e != nil && e.held && e.handout == r.handout {
		return e
	}
	return nil
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.group.topic.mu.Lock()
	defer s.group.topic.mu.Unlock()
	s.end(backend.ErrClosed)
	return nil
}

// end leaves the group. Of two reasons that it was closed is the one that counts.
func (s *source) end(err error) {
	if s.err == nil {
		delete(s.group.members, s)
		close(s.done)
	}
	if !errors.Is(s.err, backend.ErrClosed) {
		s.err = err
	}
}

func (s *source) fail(op string, err error) error {
	return fmt.Errorf("inmemory: %s %s/%s: %w", op, s.group.topic.name, s.group.name, err)
}
