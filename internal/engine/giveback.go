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
	until   moment // when the given back Holds are due, at the latest
}

// retry delays h: in the backend, if h can wait there with all of its key, and otherwise
// here.
func (t *settler) retry(h *Hold, v verdict, err error) {
	after := v.after
	if m := t.sub.engine.limits.Delay; m > 0 {
		after = min(after, m)
	}
	if v.outcome == observer.Retry {
		t.sub.counts.retried.Add(1)
		t.sub.attempts.note(&h.delivery, h.attempt)
	}
	if v.outcome != observer.Return {
		tell(t.sub.notifier.later.Retried, observer.Retried{About: h.about(), After: after, Err: err})
	}
	t.sub.sched.retry(h, t.sub.moment(time.Now().Add(after)), v.outcome)
}

// retry gives h back, or lets it rest here, or releases it.
func (d *scheduler) retry(h *Hold, due moment, outcome observer.Outcome) {
	d.mu.Lock()
	defer d.unlock()
	if h.state == released || h.lost {
		d.free([]*Hold{h}, errLeaseLost(nil))
		return
	}
	d.postpone(h, due, outcome == observer.Retry)
}

// postpone gives h back, or lets it rest here, or releases it. If counts is set, h has
// spent an attempt.
func (d *ledger) postpone(h *Hold, due moment, counts bool) {
	a := h.read.attachment
	switch {
	case a.refunds, d.closed && a.delayer != nil, a.delayer != nil && h.lane == nil:
		d.stepBack(h, due, counts)
	case a.extender != nil && d.rest(h, due, counts):
	case d.closed:
		d.free([]*Hold{h}, ErrShutdown)
	default: // it is redelivered when its lease has expired
		d.free([]*Hold{h}, nil)
	}
}

// flushDelays gives back all that a batch holds.
func (t *settler) flushDelays(batch []*giveBack) {
	most := len(batch)
	for _, g := range batch {
		most += len(g.holds)
	}
	if b := t.sub.engine.limits.Batch; b > 0 {
		most = min(most, b)
	}
	var part []item
	failures := map[*giveBack][]*Hold{}
	flush := func() {
		t.delay(part, failures)
		part = part[:0]
	}
	for _, g := range batch {
		for _, h := range g.holds {
			if h.tries > 0 && h.leaseEnds(time.Now()) { // it is not repeated
				t.giveUpDelay(h, backend.ErrUnknownOutcome)
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
		t.sub.sched.ended(g)
		if len(g.holds) > 0 {
			t.delays.Later(g, g.beforeLease(retryWait(g.holds...)))
		}
	}
}

// A item is one Hold of a giveBack.
type item struct {
	giveBack *giveBack
	hold     *Hold
}

// delay makes one call for Holds of one attachment.
func (t *settler) delay(part []item, failures map[*giveBack][]*Hold) {
	if len(part) == 0 {
		return
	}
	a := part[0].hold.read.attachment
	now := t.sub.moment(time.Now())
	ds := make([]backend.Delayed, len(part))
	for i, p := range part {
		ds[i] = backend.Delayed{
			Delivery: p.hold.delivery, For: time.Duration(max(p.giveBack.due-now, 0)), Refund: p.giveBack.counted != p.hold,
		}
	}
	ctx, cancel := t.settleContext()
	err := a.delay(ctx, ds)
	cancel()
	answered := t.sub.moment(time.Now())
	failed := 0
	for i, p := range part {
		g, h, e := p.giveBack, p.hold, backend.ErrorAt(err, i)
		due := answered.plus(ds[i].For)
		switch {
		case e == nil:
			if ds[i].Refund && !t.sub.engine.limits.Refund {
				t.sub.attempts.spare(&h.delivery)
			}
			t.sub.sched.release([]*Hold{h}, nil)
		case errors.Is(e, backend.ErrLeaseLost):
			t.sub.tellLost(h, false, e)
			t.sub.sched.release([]*Hold{h}, lostAfter(h, e))
		case t.sub.live.Err() != nil: // it stays held, so that the drain counts it
			failed++
		case t.hopeless(h, e, 0):
			failed++
			if due = h.leaseEnd(); g.early {
				due = 0 // or it would be early again, each time that its lease expires
			}
			t.giveUpDelay(h, e)
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
		t.sub.notifier.failed(observer.Delay, t.sub.about(), failed, err)
	}
}

// giveUpDelay releases h, which cannot be given back.
func (t *settler) giveUpDelay(h *Hold, err error) {
	t.sub.tellLost(h, false, err)
	t.sub.sched.release([]*Hold{h}, errLeaseLost(err))
}

// beforeLease returns wait, or less if a lease of its Holds ends before.
func (g *giveBack) beforeLease(wait time.Duration) time.Duration {
	d := &g.holds[0].read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	now := d.sub.moment(time.Now())
	for _, h := range g.holds {
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
