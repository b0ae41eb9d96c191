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

// LeaseLost returns the error for a lost lease, with the reason why, which may be nil. The error
// matches backend.ErrLeaseLost.
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

// ackDelay is how long acknowledgements wait for further ones. If runs take a millisecond or more,
// they don't wait, so that few messages are redelivered after a crash.
const ackDelay = 2 * time.Millisecond

// Claim gives the program the right to settle the message of a run, in manual mode. Only one caller
// gets it. failed means that the program settles it as failed.
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

// Confirm acknowledges h, which a worker has taken, before its run. The Wait ends without an error
// if h may run. h stays taken until then, which tells Acked and NotAcked that a run waits and h
// must not be released.
func (l *Ledger) Confirm(h *Hold) Wait {
	h.wait = NewWait()
	l.Out.Acks = append(l.Out.Acks, h)
	l.Out.FlushAcks = true
	return h.wait
}

// Unrun records that h, whose Confirm has failed, does not run, and releases it with err. It
// reports whether its lease was lost before.
func (l *Ledger) Unrun(w *Worker, h *Hold, err error) (lost bool) {
	l.takeFromWorker(h)
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
		l.ringBy(&l.flush, l.Now.Plus(ackDelay))
	}
}

// Settled records that later messages of the key of h need not wait for it any longer. h itself
// stays held until an answer releases it.
func (l *Ledger) Settled(h *Hold) {
	if h.state != released {
		h.state = settling
		h.Source.leaveLane(h)
		l.wakeWorker()
	}
}

func (l *Ledger) flushAcks(Instant) { l.Out.FlushAcks = true }

// Acked records that the broker has acknowledged h, in a call that began at start.
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

// NotAcked releases h, which cannot be acknowledged because of err. If a run of h waits for the
// acknowledgement, NotAcked only ends that wait.
func (l *Ledger) NotAcked(h *Hold, err error) {
	if h.state == taken {
		h.wait.end(err)
		return
	}
	if !h.lost && !(h.Unsure && errors.Is(err, backend.ErrLeaseLost)) { // otherwise it was reported already, or an earlier call has acknowledged h
		l.do(Effect{Kind: Lost, Hold: h, Run: h.Run, Err: err})
	}
	l.Release(h, err)
}

// EndWait ends the wait of a caller for the settlement of h, with err.
func (l *Ledger) EndWait(h *Hold, err error) { h.wait.end(err) }

// setHoldAlarm sets the alarm of h: h is due then, or the program is late.
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
			case settling, taken: // taken: it is acknowledged before its run
				l.do(Effect{Kind: Again, Hold: h})
			}
		}
	}
	l.set(h.alarm, at)
}

// Repeat asks for an effect Again for h, which is being settled, at the given time.
func (l *Ledger) Repeat(h *Hold, at Instant) { l.setHoldAlarm(h, at) }

// RepeatNow ends the waits of Repeat.
func (l *Ledger) RepeatNow() {
	for _, h := range l.held {
		if (h.state == settling || h.state == taken) && h.alarm != nil && h.alarm.at != 0 {
			l.set(h.alarm, 0)
			l.do(Effect{Kind: Again, Hold: h})
		}
	}
}

// A Wait gets the result of a settlement.
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
