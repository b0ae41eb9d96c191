package engine

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A giveBack has Holds that are given back together: one Hold, or the Holds of one lane by
// position. A drain makes one giveBack of all Holds that have not started.
type giveBack struct {
	lane    *lane // the lane that steps back, see lane; nil: none
	away    *away // the lane.away that counts this giveBack
	holds   []*Hold
	due     moment // when the Holds shall be due; zero: immediately
	counted *Hold  // the Hold that has spent an attempt; nil: none
	early   bool   // the Holds arrived too early, see lane.early
	chases  bool   // the next Receive waits for the end of the first call of Delay
	until   moment // when all Holds that were given back are surely due
}

// retry makes h due again after v.after, see postpone. It tells the observer, unless a
// drain has interrupted the run.
func (t *settler) retry(h *Hold, v verdict, err error) {
	after := t.allowed(v.after)
	if v.outcome == observer.Retry {
		t.sub.counts.retried.Add(1)
		t.sub.attempts.failed(&h.delivery, h.attempt)
	}
	if v.outcome != observer.Return {
		tell(t.sub.notifier.later.Retried, observer.Retried{About: h.about(), After: after, Err: err})
	}
	t.sub.sched.retry(h, t.sub.moment(time.Now().Add(after)), v.outcome)
}

// allowed returns d, but at most the longest delay of the backend.
func (t *settler) allowed(d time.Duration) time.Duration {
	if m := t.sub.engine.limits.Delay; m > 0 {
		return min(d, m)
	}
	return d
}

// retry postpones h. If h has lost its lease, retry releases it.
func (d *scheduler) retry(h *Hold, due moment, outcome observer.Outcome) {
	d.mu.Lock()
	defer d.unlock()
	if h.state == released || h.lost {
		d.free([]*Hold{h}, errLeaseLost(nil))
		return
	}
	d.postpone(h, due, outcome == observer.Retry)
}

// postpone makes h due again at the moment due. It gives h back if the backend refunds
// attempts, h has no lane, or a drain has begun. Otherwise h rests in this member, because
// to give back h and its lane would cost the other Holds an attempt. If h can neither be
// given back nor rest, it is redelivered when its lease has expired. counts means that h
// has spent an attempt.
func (d *ledger) postpone(h *Hold, due moment, counts bool) {
	a := h.read.attachment
	switch {
	case a.refunds, d.closed && a.delayer != nil, a.delayer != nil && h.lane == nil:
		d.stepBack(h, due, counts)
	case a.extender != nil && !h.unfit() && d.rest(h, due, counts): // otherwise it would run later
	case d.closed:
		d.free([]*Hold{h}, ErrShutdown)
	default: // h is redelivered when its lease has expired
		d.free([]*Hold{h}, nil)
	}
}

// flushDelays gives back the Holds of a batch.
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
			if h.tries > 0 && h.leaseEnds(time.Now()) { // no repeated call after the lease
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
		if len(g.holds) > 0 && t.sub.live.Err() == nil { // otherwise they stay held, so that the drain counts them
			t.delays.Later(g, t.retryWait(g.holds...))
		}
	}
}

// An item is one Hold of a giveBack.
type item struct {
	giveBack *giveBack
	hold     *Hold
}

// delay makes one call of Delay for Holds of one attachment. It adds each Hold to failures
// whose call must be repeated.
func (t *settler) delay(part []item, failures map[*giveBack][]*Hold) {
	if len(part) == 0 {
		return
	}
	a := part[0].hold.read.attachment
	now := t.sub.moment(time.Now())
	ds := make([]backend.Delayed, len(part))
	for i, p := range part {
		ds[i] = backend.Delayed{
			Delivery: p.hold.delivery, For: t.allowed(time.Duration(max(p.giveBack.due-now, 0))), Refund: p.giveBack.counted != p.hold,
		}
		if ds[i].Refund && !t.sub.engine.limits.Refund { // now, because the event may be redelivered before the answer
			t.sub.attempts.expect(&ds[i].Delivery, p.hold.attempt)
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
			t.sub.sched.release([]*Hold{h}, nil)
		case errors.Is(e, backend.ErrLeaseLost):
			due = 0 // the call had no effect
			t.sub.tellLost(h, false, e)
			t.sub.sched.release([]*Hold{h}, lostAfter(h, e))
		case t.sub.live.Err() != nil: // h stays held, so that the drain counts it
			failed++
		case t.hopeless(h, e, 0):
			failed++
			if due = h.leaseEnd(); g.early {
				due = 0 // otherwise h would arrive early after each expiry of its lease
			}
			t.giveUpDelay(h, e)
		default:
			failed++
			failures[g] = append(failures[g], h)
			if backend.NotStored(e) { // otherwise the call may have delayed h
				due = 0
			}
		}
		g.until = max(g.until, due)
	}
	if failed > 0 && !errors.Is(err, errors.ErrUnsupported) {
		t.sub.notifier.failed(observer.Delay, t.sub.about(), failed, err)
	}
}

// giveUpDelay releases h after its calls of Delay have failed, and reports its lease as
// lost.
func (t *settler) giveUpDelay(h *Hold, err error) {
	if !errors.Is(err, errors.ErrUnsupported) {
		t.sub.tellLost(h, false, err)
	}
	t.sub.sched.release([]*Hold{h}, errLeaseLost(err))
}

// lostAfter returns the error for a caller that waits for the settlement of h, whose lease
// is lost. If an earlier call has failed, the outcome is unknown, because it may have
// settled h.
func lostAfter(h *Hold, err error) error {
	if h.tries > 0 {
		return unknown(err)
	}
	return errLeaseLost(err)
}

// ended notes that a call of Delay for g has ended.
func (d *scheduler) ended(g *giveBack) {
	d.mu.Lock()
	defer d.unlock()
	d.gaveBack(g)
}
