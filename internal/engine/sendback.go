package engine

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A sentBack is a Hold on its way back to the backend.
type sentBack struct {
	hold   *Hold
	due    time.Time // zero: at once
	refund bool
}

// retry lets h come again after a while: from the backend, or, where that cannot
// wait, from here.
func (s *Subscription) retry(h *Hold, v verdict, err error) {
	after := v.after
	if m := s.engine.limits.Delay; m > 0 {
		after = min(after, m)
	}
	if v.outcome == observer.Retry {
		s.counts.retried.Add(1)
		s.attempts.note(&h.delivery, h.attempt)
	}
	tell(s.engine.tell.later.Retried, observer.Retried{About: h.about(), After: after, Err: err})
	due := time.Now().Add(after)
	switch a := h.read.attachment; {
	case a.delayer != nil && s.desk.sendAway(h, due):
		s.delays.Add(sentBack{hold: h, due: due, refund: v.refund})
	case a.extender != nil && s.desk.rest(h, due, v.outcome == observer.Retry):
	default: // its lease runs out: that is when it comes again
		s.desk.mu.Lock()
		s.desk.awaitReturn(h, s.desk.leaseEnd(h))
		s.desk.mu.Unlock()
		s.desk.release([]*Hold{h}, err)
	}
}

// sendBack gives back what is not to run here: without Delayer when its lease has passed.
func (s *Subscription) sendBack(b sentBack) {
	if b.hold.read.attachment.delayer == nil {
		if b.refund {
			s.attempts.spare(&b.hold.delivery)
		}
		s.desk.release([]*Hold{b.hold}, ErrShutdown) // nobody waits for what is not given back for that
		return
	}
	s.desk.mu.Lock()
	b.hold.stage = returning
	s.desk.mu.Unlock()
	s.delays.Add(b)
}

// sendAway notes that h leaves until due. It refuses if too much is away to keep
// the order of.
func (d *desk) sendAway(h *Hold, due time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.lane != laneless && d.lanes.AwayCount() >= d.sub.maxAway() {
		return false
	}
	h.stage = returning
	d.awaitReturn(h, due)
	d.leaveLane(h)
	return true
}

// rest keeps the delivery of h here until due, and its place in its lane, as a
// Hold of its own: the run of h ends with h, with its context, its timeout, who
// waits for its settlement, and a handler that has not returned yet. It refuses
// if the desk is closed, or another receipt of it is here.
func (d *desk) rest(h *Hold, due time.Time, counts bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || h.stage == released || h.cameAgain {
		return false
	}
	r := d.sub.newRead(h.read.attachment, 1)
	r.index = len(d.reads)
	next := &r.holds[0]
	next.delivery = h.delivery
	next.attempt, next.size, next.until = h.attempt, h.size, h.until
	next.took, next.failed = h.took, h.failed
	if counts {
		next.attempt++
	}
	next.lane, h.lane = h.lane, laneless
	next.stage, next.due = resting, d.sub.moment(due)
	d.reads = append(d.reads, r)
	d.held++
	d.resting = append(d.resting, next)
	d.free([]*Hold{h}, nil) // the limiter is told nothing: the place is taken over
	d.nudgeWatch(due)
	return true
}

// flushDelays gives a batch back, and tries again what certainly failed while
// the leases last. Of the rest the leases run out.
func (s *Subscription) flushDelays(batch []sentBack) {
	again := newBackoff()
	for len(batch) > 0 {
		err := s.delay(batch)
		var done []*Hold
		var failed []sentBack
		for i, b := range batch {
			switch e := backend.ErrorAt(err, i); {
			case e == nil:
				if b.refund && !s.engine.limits.Refund {
					s.attempts.spare(&b.hold.delivery)
				}
				done = append(done, b.hold)
			case errors.Is(e, backend.ErrLeaseLost):
				s.tellLost(b.hold, false, e)
				done = append(done, b.hold)
			default:
				failed = append(failed, b)
			}
		}
		s.desk.release(done, nil)
		if len(failed) == 0 {
			return
		}
		s.engine.tell.failed(observer.Delay, s.about(), len(failed), err)
		wait := again.NextBackOff()
		batch = s.stillHeld(failed, err, time.Now().Add(wait))
		if len(batch) > 0 && !sleep(s.live, wait) {
			s.stillHeld(batch, err, time.Time{})
			return
		}
	}
}

// delay makes one call for what belongs to one attachment after the other.
func (s *Subscription) delay(batch []sentBack) error {
	errs := make([]error, len(batch))
	now := time.Now()
	for from := 0; from < len(batch); {
		a := batch[from].hold.read.attachment
		to := from
		var ds []backend.Delayed
		for ; to < len(batch) && batch[to].hold.read.attachment == a; to++ {
			b := batch[to]
			ds = append(ds, backend.Delayed{Delivery: b.hold.delivery, For: max(b.due.Sub(now), 0), Refund: b.refund})
		}
		err := errors.ErrUnsupported
		if a.delayer != nil {
			ctx, cancel := s.settleContext()
			err = a.delayer.Delay(ctx, ds)
			cancel()
		}
		for i := from; i < to; i++ {
			errs[i] = backend.ErrorAt(err, i-from)
		}
		from = to
	}
	return backend.AsBatchError(errs)
}

// stillHeld lets go those that cannot be given back any more, and returns the
// others.
func (s *Subscription) stillHeld(batch []sentBack, err error, then time.Time) (rest []sentBack) {
	var let []*Hold
	s.desk.mu.Lock()
	for _, b := range batch {
		if then.IsZero() || b.hold.lost || b.hold.until <= s.moment(then) || errors.Is(err, errors.ErrUnsupported) {
			let = append(let, b.hold)
		} else {
			rest = append(rest, b)
		}
	}
	s.desk.mu.Unlock()
	s.desk.release(let, err)
	return rest
}
