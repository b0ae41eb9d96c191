package inmemory

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Ack implements [backend.Source]. With Config.ConfirmAcks it is fenced, like Delay.
func (s *source) Ack(_ context.Context, ds []*backend.Delivery) error {
	return s.each("ack", len(ds), func(i int, _ time.Time) error {
		e, err := s.entry(ds[i], s.fence)
		if err == nil && !e.settled {
			s.group.settle(e)
		}
		return err
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(_ context.Context, ds []backend.Delayed) error {
	return s.each("delay", len(ds), func(i int, now time.Time) error {
		e, err := s.entry(&ds[i].Delivery, true)
		if err != nil {
			return err
		}
		if ds[i].Refund {
			e.attempt--
		}
		e.held = false
		s.group.postpone(now.Add(max(ds[i].For, 0)), e)
		return nil
	})
}

// Extend implements [backend.Extender]. It also extends a lease that has expired, unless
// the message was redelivered.
func (s *source) Extend(_ context.Context, ds []*backend.Delivery) error {
	return s.each("extend", len(ds), func(i int, now time.Time) error {
		e, err := s.entry(ds[i], true)
		if err == nil {
			s.group.postpone(now.Add(s.lease), e)
		}
		return err
	})
}

// each locks the topic and calls the callback one with each index from 0 to n-1. It
// collects the errors of all callbacks.
func (s *source) each(op string, n int, one func(i int, now time.Time) error) error {
	g := s.group
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	if s.err != nil {
		return failed(op+" "+g.path, s.err)
	}
	now, before := time.Now(), g.unsettled()
	var errs backend.BatchError
	for i := range n {
		if err := one(i, now); err != nil {
			errs.Set(i, n, failed(op+" "+g.path, err))
		}
	}
	g.topic.trim()
	g.topic.backend.ledger.owe(g.unsettled() - before)
	g.alert(now)
	return backend.AsBatchError(errs)
}

// entry returns the entry of a delivery. If fenced is set and the member no longer holds
// this delivery, entry returns [backend.ErrLeaseLost].
func (s *source) entry(d *backend.Delivery, fenced bool) (*entry, error) {
	r, ok := d.Token.(*receipt)
	if !ok || r.entry.group != s.group {
		return nil, errForeign
	}
	if e := r.entry; fenced && (e.settled || !e.held || e.handout != r.handout) {
		return nil, backend.ErrLeaseLost
	}
	return r.entry, nil
}
