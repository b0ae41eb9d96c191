package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// ErrTimeout is the Err of the EndRun effect for a run whose timeout has passed.
var ErrTimeout = errors.New("eventbus: the timeout has passed")

// ErrSettled means that the message has already been settled.
var ErrSettled = errors.New("eventbus: already settled")

// Reasons for the loss of a lease.
var (
	ErrAckedLate   = fmt.Errorf("%w: it ended before the event was acknowledged, so another member may have the event too", backend.ErrLeaseLost)
	ErrAckedBefore = fmt.Errorf("%w: the event is acknowledged by its delivery before", backend.ErrLeaseLost)
)

// LeaseLost returns an error that matches backend.ErrLeaseLost and includes the reason why, which
// may be nil.
func LeaseLost(why error) error {
	switch {
	case why == nil:
		why = backend.ErrLeaseLost
	case !errors.Is(why, backend.ErrLeaseLost):
		why = fmt.Errorf("%w: %w", backend.ErrLeaseLost, why)
	}
	return fmt.Errorf("eventbus: %w", why)
}

// Unknown wraps err in backend.ErrUnknownOutcome, because the failed call may have taken effect.
func Unknown(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }

// ackDelay is how long acknowledgements wait for others to join them. If runs take a millisecond or
// longer, they don't wait, so that fewer messages are redelivered after a crash.
const ackDelay = 2 * time.Millisecond

// Claim gives the program the right to settle the message of a run, in manual mode. Only one caller
// gets it. failed says whether the program settles it as failed.
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
	if h.alarm != nil {
		l.set(h.alarm, 0)
	}
	return h.wait, nil
}

// Confirm acknowledges h, which a worker has taken, before its run. If the Wait ends without an
// error, h may run. Until then h stays in the state taken, from which Acked and NotAcked see that a
// run is waiting and h must not be released.
func (l *Ledger) Confirm(h *Hold) Wait {
	h.wait = NewWait()
	l.Out.Acks = append(l.Out.Acks, h)
	l.Out.FlushAcks = true
	return h.wait
}

// Unrun records that h doesn't run because its Confirm failed, and releases it with err. It reports
// whether the lease had been lost before that.
func (l *Ledger) Unrun(w *Worker, h *Hold, err error) (lost bool) {
	l.takeFromWorker(h)
	lost = h.lost
	h.lost = true
	l.Release(h, err)
	return lost
}

// Acknowledge settles h. Except in manual mode, the next message with its key may run.
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
		l.ringBy(&l.flush, l.Now.Plus(ackDelay))
	}
}

// Settled records that later messages with the key of h no longer need to wait for it. h itself
// stays held until the broker's answer releases it.
func (l *Ledger) Settled(h *Hold) {
	if h.state != released {
		h.state = settling
		h.Source.leaveLane(h)
		l.wakeWorker()
	}
}

func (l *Ledger) flushAcks(Instant) { l.Out.FlushAcks = true }

// Acked records that the broker has acknowledged h, in a call that started at start.
func (l *Ledger) Acked(h *Hold, start Instant) {
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

// NotAcked releases h, which could not be acknowledged because of err. If a run of h is waiting for
// the acknowledgement, NotAcked only ends that wait.
func (l *Ledger) NotAcked(h *Hold, err error) {
	if h.state == taken {
		h.wait.end(err)
		return
	}
	if !h.lost && !(h.Unsure && errors.Is(err, backend.ErrLeaseLost)) { // otherwise it has been reported already, or an earlier call has acknowledged h
		l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Err: err})
	}
	l.Release(h, err)
}

// EndWait ends a caller's wait for the settlement of h, with err.
func (l *Ledger) EndWait(h *Hold, err error) { h.wait.end(err) }

// setHoldAlarm sets the alarm of h, at which h is due or the program is late to settle it.
func (l *Ledger) setHoldAlarm(h *Hold, at Instant) {
	if h.alarm == nil {
		h.alarm = &alarm{}
		h.alarm.ring = func(Instant) {
			switch h.state {
			case waiting:
				l.stopWaiting(h)
				l.admit(h)
				l.wakeWorker()
			case entrusted:
				h.late = true
				l.expire(h)
			case settling, taken: // taken: it is being acknowledged before its run
				l.do(Effect{Kind: Again, Hold: h})
			}
		}
	}
	l.set(h.alarm, at)
}

// Repeat requests an Again effect at the given time for h, which is being settled.
func (l *Ledger) Repeat(h *Hold, at Instant) { l.setHoldAlarm(h, at) }

// RepeatNow ends all waits that Repeat has started.
func (l *Ledger) RepeatNow() {
	for _, h := range l.held {
		if (h.state == settling || h.state == taken) && h.alarm != nil && h.alarm.at != 0 {
			l.set(h.alarm, 0)
			l.do(Effect{Kind: Again, Hold: h})
		}
	}
}

// A Wait receives the result of a settlement.
type Wait chan error

// NewWait returns a Wait.
func NewWait() Wait { return make(Wait, 1) }

// end ends the wait with the result err, unless w is nil. Only the first call has an effect.
func (w Wait) end(err error) {
	select {
	case w <- err:
	default:
	}
}
