package engine

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A giveBack has the Holds that go back to the backend in one step, by position: one
// Hold, or the Holds of one lane.
type giveBack struct {
	lane    *lane // nil: none
	holds   []*Hold
	due     moment // zero: at once
	counted *Hold  // the one that has spent an attempt; nil: none
	early   bool   // they arrived too early
	chases  bool   // and the fetcher waits for the first answer
	until   moment // when the Holds that went back are due, at the latest
}

// retry lets h come again after a while: from the backend, if it can wait there
// with all of its key, and otherwise from here.
func (s *Subscription) retry(h *Hold, v verdict, err error) {
	after := v.after
	if m := s.engine.limits.Delay; m > 0 {
		after = min(after, m)
	}
	if v.outcome == observer.Retry {
		s.counts.retried.Add(1)
		s.attempts.note(&h.delivery, h.attempt)
	}
	if v.outcome != observer.Return {
		tell(s.engine.tell.later.Retried, observer.Retried{About: h.about(), After: after, Err: err})
	}
	s.sched.retry(h, s.moment(time.Now().Add(after)), v.outcome)
}

// retry gives h back, or lets it rest here, or releases it.
func (d *scheduler) retry(h *Hold, due moment, outcome observer.Outcome) {
	d.mu.Lock()
	defer d.unlock()
	a, counts := h.read.attachment, outcome == observer.Retry
	switch {
	case h.state == released || h.lost:
		d.free([]*Hold{h}, errLeaseLost(nil))
	case d.sub.canRefund(a), d.closed && a.delayer != nil, a.delayer != nil && h.lane == nil:
		d.stepBack(h, due, counts)
	case a.extender != nil && d.rest(h, due, counts):
	case d.closed:
		d.free([]*Hold{h}, ErrShutdown)
	default: // it comes again when its lease has passed
		d.free([]*Hold{h}, nil)
	}
}

// flushDelays gives back all that a batch holds.
func (s *Subscription) flushDelays(batch []*giveBack) {
	most := len(batch)
	for _, g := range batch {
		most += len(g.holds)
	}
	if b := s.engine.limits.Batch; b > 0 {
		most = min(most, b)
	}
	var part []item
	failures := map[*giveBack][]*Hold{}
	flush := func() {
		s.delay(part, failures)
		part = part[:0]
	}
	for _, g := range batch {
		for _, h := range g.holds {
			if h.tries > 0 && s.sched.leaseEnds(h, time.Now()) { // it is not repeated
				s.giveUpDelay(h, backend.ErrUnknownOutcome)
				continue
			}
			if len(part) == most || len(part) > 0 && part[0].hold.read.attachment != h.read.attachment {
				flush()
			}
			part = append(part, item{g, h})
		}
	}
	flush()
	for _, g := range batch {
		g.holds = failures[g]
		s.sched.ended(g)
		if len(g.holds) > 0 {
			s.delays.Later(g, s.sched.beforeLease(g.holds, retryWait(g.holds...)))
		}
	}
}

// A item is one Hold of a giveBack.
type item struct {
	giveBack *giveBack
	hold     *Hold
}

// delay makes one call for Holds of one attachment.
func (s *Subscription) delay(part []item, failures map[*giveBack][]*Hold) {
	if len(part) == 0 {
		return
	}
	a := part[0].hold.read.attachment
	now := s.moment(time.Now())
	ds := make([]backend.Delayed, len(part))
	for i, p := range part {
		ds[i] = backend.Delayed{
			Delivery: p.hold.delivery, For: time.Duration(max(p.giveBack.due-now, 0)), Refund: p.giveBack.counted != p.hold,
		}
	}
	ctx, cancel := s.settleContext()
	err := a.delay(ctx, ds)
	cancel()
	answered := s.moment(time.Now())
	failed := 0
	for i, p := range part {
		g, h, e := p.giveBack, p.hold, backend.ErrorAt(err, i)
		due := answered.plus(ds[i].For)
		switch {
		case e == nil:
			if ds[i].Refund && !s.engine.limits.Refund {
				s.attempts.spare(&h.delivery)
			}
			s.sched.release([]*Hold{h}, nil)
		case errors.Is(e, backend.ErrLeaseLost):
			s.tellLost(h, false, e)
			s.sched.release([]*Hold{h}, lostAfter(h, e))
		case s.live.Err() != nil: // it stays held: the drain says how many there are
			failed++
		case s.hopeless(h, e, 0):
			failed++
			if due = h.leaseEnd(); g.early {
				due = 0 // or it would be early again, each time that its lease has passed
			}
			s.giveUpDelay(h, e)
		default:
			failed++
			failures[g] = append(failures[g], h)
			if backend.NotStored(e) { // or else the call may have had its effect
				due = 0
			}
		}
		g.until = max(g.until, due)
	}
	if failed > 0 && !errors.Is(err, errors.ErrUnsupported) {
		s.engine.tell.failed(observer.Delay, s.about(), failed, err)
	}
}

// giveUpDelay releases h, which cannot be given back.
func (s *Subscription) giveUpDelay(h *Hold, err error) {
	s.tellLost(h, false, err)
	s.sched.release([]*Hold{h}, errLeaseLost(err))
}

// beforeLease returns wait, or less if a lease of hs ends before.
func (d *scheduler) beforeLease(hs []*Hold, wait time.Duration) time.Duration {
	d.mu.Lock()
	defer d.unlock()
	now := d.sub.moment(time.Now())
	for _, h := range hs {
		wait = min(wait, max(time.Duration(h.until-now), 0))
	}
	return wait
}

// lostAfter is the error of a caller whose Hold is no longer its own. After a call
// without an answer the outcome is unknown, because that call may have settled the Hold.
func lostAfter(h *Hold, err error) error {
	if h.tries > 0 {
		return unknown(err)
	}
	return errLeaseLost(err)
}

// ended notes that a call for g has ended.
func (d *scheduler) ended(g *giveBack) {
	d.mu.Lock()
	defer d.unlock()
	d.gaveBack(g)
}
