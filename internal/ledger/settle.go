package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// ErrTimeout is the Err of the effect EndRun for a run whose timeout has passed.
var ErrTimeout = errors.New("eventbus: the timeout has passed")

// ErrSettled means that the message was already settled.
var ErrSettled = errors.New("eventbus: already settled")

// Reasons of lost leases.
var (
	ErrAckedLate   = fmt.Errorf("%w: it ended before the event was acknowledged, so another member may have the event too", backend.ErrLeaseLost)
	ErrAckedBefore = fmt.Errorf("%w: the event is acknowledged by its delivery before", backend.ErrLeaseLost)
)

// LeaseLost returns the error for a lost lease; why is the reason, or nil. The error matches
// backend.ErrLeaseLost.
func LeaseLost(why error) error {
	switch {
	case why == nil:
		why = backend.ErrLeaseLost
	case !errors.Is(why, backend.ErrLeaseLost):
		why = fmt.Errorf("%w: %w", backend.ErrLeaseLost, why)
	}
	return fmt.Errorf("eventbus: %w", why)
}

// Unknown wraps err as backend.ErrUnknownOutcome, because the failed call may have had its
// effect.
func Unknown(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }

// gatherAcks is how long acknowledgements wait for further ones. If runs take a millisecond
// or more they do not wait, so that few messages are redelivered after a crash.
const gatherAcks = 2 * time.Millisecond

// Claim gives the program the right to settle the message of a run, in manual mode. Only one
// caller gets it. failed: the program settles it as failed.
func (l *Ledger) Claim(h *Hold, run any, failed bool) (Wait, error) {
	if h.Run == run && (h.state == taken || h.state == entrusted) && h.until <= l.Now {
		l.Lose(h, nil)
	}
	switch {
	case h.Run == run && (h.lost || h.expired):
		return nil, LeaseLost(nil)
	case h.Run != run || h.state != taken && h.state != entrusted:
		return nil, ErrSettled
	}
	h.trust()
	h.state, h.failed, h.wait = settling, failed, NewWait()
	if h.bell != nil {
		l.set(h.bell, 0)
	}
	return h.wait, nil
}

// Confirm acknowledges h, which a worker has taken, before its run. The Wait ends without an
// error if h may run. h stays taken meanwhile: so Acked and NotAcked know that a run waits, and do
// not release h.
func (l *Ledger) Confirm(h *Hold) Wait {
	h.wait = NewWait()
	l.Out.Acks = append(l.Out.Acks, h)
	l.Out.FlushAcks = true
	return h.wait
}

// Unrun records that h, whose Confirm has failed, does not run, and releases it with err. It
// reports whether its lease was lost before.
func (l *Ledger) Unrun(w *Worker, h *Hold, err error) (lost bool) {
	l.give(h)
	lost = h.lost
	h.lost = true
	l.Release(h, err)
	return lost
}

// Acknowledge settles h. The next message of its key may run, but not in manual mode.
func (l *Ledger) Acknowledge(h *Hold) {
	if h.state == released {
		return
	}
	if h.state != settling {
		h.state = settling
	}
	if !l.Entrusts {
		h.Source.leaveLane(h)
	}
	l.Out.Acks = append(l.Out.Acks, h)
	if l.average >= sliceTime || l.Entrusts {
		l.Out.FlushAcks = true
	} else {
		l.by(&l.flush, l.Now.Plus(gatherAcks))
	}
}

// Settled records that h is settled as far as later messages of its key are concerned. h stays held
// until an answer releases it.
func (l *Ledger) Settled(h *Hold) {
	if h.state != released {
		h.state = settling
		h.Source.leaveLane(h)
		l.rouse()
	}
}

func (l *Ledger) flushAcks(Moment) { l.Out.FlushAcks = true }

// Acked records that the broker has acknowledged h. The call began at the moment start.
func (l *Ledger) Acked(h *Hold, start Moment) {
	switch late := h.lost || h.until <= l.Now; {
	case h.state == taken && late:
		h.wait.end(fmt.Errorf("eventbus: acknowledged after the lease: %w", Unknown(backend.ErrLeaseLost)))
	case h.state == taken:
		h.leaseless = true
		h.wait.end(nil)
	default:
		s := h.Source
		if late && !h.lost && !(l.Entrusts && l.Fenced) && h.until <= start {
			l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Err: ErrAckedLate})
		}
		if l.Release(h, nil); late {
			s.ackedLate(h)
		} else {
			s.forget(h.Delivery.Position)
		}
	}
}

// NotAcked releases h, which cannot be acknowledged because of err. If h waits for its run,
// NotAcked only ends the wait.
func (l *Ledger) NotAcked(h *Hold, err error) {
	if h.state == taken {
		h.wait.end(err)
		return
	}
	if !h.lost && !(h.Unsure && errors.Is(err, backend.ErrLeaseLost)) { // otherwise it was told, or an earlier call has acknowledged h
		l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Err: err})
	}
	l.Release(h, err)
}

// EndWait ends, with err, the wait of a caller for the settlement of h.
func (l *Ledger) EndWait(h *Hold, err error) { h.wait.end(err) }

// Postpone lets h come again at the moment due. counts: it has spent an attempt. If its lease
// is lost, h is released.
func (l *Ledger) Postpone(h *Hold, due Moment, counts bool) {
	if h.state == released {
		return
	}
	if h.lost {
		l.Release(h, LeaseLost(nil))
		return
	}
	l.postpone(h, due, counts)
	l.rouse()
}

// postpone gives h back if the backend refunds attempts and keeps the order of redelivered
// messages, or if h is in no order. Otherwise h rests in this member. If h can do neither, it
// is redelivered when its lease has ended.
func (l *Ledger) postpone(h *Hold, due Moment, counts bool) {
	s := h.Source
	gone := l.closed || s.revoked
	switch {
	case s.CanDelay && (s.Refunds || gone || h.lane == nil):
		if h.handsOver() {
			due = l.Now
		}
		h.Counted = counts
		l.giveBack(h, due)
	case s.CanExtend && !h.Unfit && !gone:
		l.rest(h, due, counts)
	case gone:
		l.Release(h, ErrNotStarted)
	default:
		s.remember(h).due(h.until)
		l.Release(h, nil)
	}
}

// ErrNotStarted is the error for a message that a member that ends does not settle.
var ErrNotStarted = errors.New("eventbus: shutting down")

// giveBack hands h to the queue of Delays. It leaves a stub in the lane of h, for which later
// messages of its key wait. postpone decides between giveBack and rest.
func (l *Ledger) giveBack(h *Hold, due Moment) {
	h.Source.away(h)
	h.leave()
	l.give(h)
	h.state, h.Due, h.returning = settling, due, true
	l.do(Effect{Kind: GiveBack, Hold: h})
}

// rest keeps h in this member until due. Its run has no Hold any more.
func (l *Ledger) rest(h *Hold, due Moment, counts bool) {
	if counts {
		h.Attempt++
	}
	n := h.lane
	if h.state == ready {
		l.leaveLine(h)
	}
	if n != nil {
		n.remove(h)
	}
	if h.trusted {
		h.trusted = false
		l.entrusts--
		l.count(span{h.began, l.Now}, h.failed)
	}
	l.give(h)
	h.wait.end(nil)
	h.wait, h.Run, h.Due, h.Tries, h.Unsure = nil, nil, due, 0, false
	h.maybe = 0
	h.expired, h.failed, h.late, h.left = false, false, false, false
	l.waits(h)
	l.park(h)
	if n != nil {
		l.advance(n)
	}
}

// ringHold lets the alarm of h ring at the moment at: h is due, or its program is late.
func (l *Ledger) ringHold(h *Hold, at Moment) {
	if h.bell == nil {
		h.bell = &alarm{}
		h.bell.ring = func(Moment) {
			switch h.state {
			case waiting:
				l.stopsWaiting(h)
				l.admit(h)
				l.rouse()
			case entrusted:
				h.late = true
				l.expire(h)
			case settling, taken: // taken: it is acknowledged before its run
				l.do(Effect{Kind: Again, Hold: h})
			}
		}
	}
	l.set(h.bell, at)
}

// Repeat asks for an effect Again for h, which is being settled, at the moment at.
func (l *Ledger) Repeat(h *Hold, at Moment) { l.ringHold(h, at) }

// Hurry ends the waits of Repeat.
func (l *Ledger) Hurry() {
	for _, h := range l.held {
		if (h.state == settling || h.state == taken) && h.bell != nil && h.bell.at != 0 {
			l.set(h.bell, 0)
			l.do(Effect{Kind: Again, Hold: h})
		}
	}
}

// Expecting prepares a call of Delay for h. A call that refunds no attempt counts one.
func (l *Ledger) Expecting(h *Hold, refunds bool) {
	if !h.Counted && !refunds { // now, because the message may be redelivered before the answer
		h.Source.expect(h, h.Attempt)
	}
}

// Unclear records that a call may have settled h. If it was a Delay, h is due after at the
// latest.
func (l *Ledger) Unclear(h *Hold, after time.Duration) {
	h.Unsure = true
	if h.returning {
		h.maybe = max(h.maybe, l.Now.Plus(after))
	}
}

// Delayed records that h was given back, to be due at the moment due.
func (l *Ledger) Delayed(h *Hold, due Moment) {
	h.Source.remember(h).due(due)
	l.stubDue(h, due)
	l.Release(h, nil)
}

// NotDelayed records that h cannot be given back because of err. It is redelivered when its lease
// ends. If another member has it already, the lease is lost.
func (l *Ledger) NotDelayed(h *Hold, err error) {
	lost := errors.Is(err, backend.ErrLeaseLost)
	if st := h.stub; lost && st != nil && !h.Unsure {
		h.stub = nil
		n := st.lane
		h.Source.resolve(st)
		if n != nil {
			l.advance(n)
		}
	} else {
		l.stubDue(h, max(l.LeaseEnd(h), h.maybe))
	}
	if !(lost && h.Unsure) && !errors.Is(err, errors.ErrUnsupported) { // otherwise an earlier call has given h back
		l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Err: err})
	}
	if lost && h.Unsure {
		err = Unknown(err)
	} else {
		err = LeaseLost(err)
	}
	l.Release(h, err)
	l.rouse()
}
