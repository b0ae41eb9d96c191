package ledger

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Postpone lets h come again when it is due. counts means that it has spent an attempt. If its
// lease is lost, h is released.
func (l *Ledger) Postpone(h *Hold, due Instant, counts bool) {
	if h.state == released {
		return
	}
	if h.lost {
		l.Release(h, LeaseLost(nil))
		return
	}
	l.postpone(h, due, counts)
	l.wakeWorker()
}

// postpone gives h back if the backend refunds attempts and redelivers in order, or if h has no
// order. Otherwise h waits for its retry in this member. If neither is possible, it is redelivered
// when its lease has expired.
func (l *Ledger) postpone(h *Hold, due Instant, counts bool) {
	s := h.Source
	gone := l.closed || s.revoked
	switch {
	case s.CanDelay && (s.Refunds || gone || h.lane == nil):
		if h.returnsAtOnce() {
			due = l.Now
		}
		h.Counted = counts
		l.giveBack(h, due)
	case s.CanExtend && !h.Unfit && !gone:
		l.retryHere(h, due, counts)
	case gone:
		l.Release(h, ErrNotStarted)
	default:
		s.remember(h).due(h.until)
		l.Release(h, nil)
	}
}

// ErrNotStarted is the error for a message that a member that ends does not settle.
var ErrNotStarted = errors.New("eventbus: shutting down")

// giveBack hands h to the queue of Delays, and leaves a stub in its lane, for which later messages
// of its key wait. postpone decides between giveBack and retryHere.
func (l *Ledger) giveBack(h *Hold, due Instant) {
	h.Source.leaveStub(h)
	h.leave()
	l.takeFromWorker(h)
	h.state, h.Due, h.returning = settling, due, true
	l.do(Effect{Kind: GiveBack, Hold: h})
}

// retryHere keeps h in this member until it is due. Its earlier run has no Hold any more.
func (l *Ledger) retryHere(h *Hold, due Instant, counts bool) {
	if counts {
		h.Attempt++
	}
	n := h.lane
	if h.state == ready {
		l.dequeue(h)
	}
	if n != nil {
		n.remove(h)
	}
	if h.trusted {
		h.trusted = false
		l.entrusts--
		l.count(span{h.began, l.Now}, h.failed)
	}
	l.takeFromWorker(h)
	h.wait.end(nil)
	h.wait, h.Run, h.Due, h.Tries, h.Unsure = nil, nil, due, 0, false
	h.dueIfDelayed = 0
	h.expired, h.failed, h.late, h.left = false, false, false, false
	l.startWaiting(h)
	l.park(h)
	if n != nil {
		l.advance(n)
	}
}

// BeforeDelay prepares a call of Delay for h. A call that refunds no attempt counts one.
func (l *Ledger) BeforeDelay(h *Hold, refunds bool) {
	if !h.Counted && !refunds { // now, because the message may be redelivered before the answer
		h.Source.expect(h, h.Attempt)
	}
}

// MarkUnknown records that a call may have settled h. If the call was a Delay, h is due after the
// given time at the latest.
func (l *Ledger) MarkUnknown(h *Hold, after time.Duration) {
	h.Unsure = true
	if h.returning {
		h.dueIfDelayed = max(h.dueIfDelayed, l.Now.Plus(after))
	}
}

// Delayed records that h was given back, and when it is due.
func (l *Ledger) Delayed(h *Hold, due Instant) {
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
		l.stubDue(h, max(l.LeaseEnd(h), h.dueIfDelayed))
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
	l.wakeWorker()
}

const (
	firstFloor     = 10 * time.Millisecond
	highestFloor   = 50 * time.Millisecond
	timesToHighest = uint8(highestFloor / firstFloor)
)

// Floor counts a run of h after which h is given back. It returns the least delay until its
// redelivery: 10 ms, and 10 ms more for each repeat, up to 50 ms. Without it a handler that
// asks for no delay would keep a processor, or the broker, busy.
func (l *Ledger) Floor(h *Hold) time.Duration {
	m := h.Source.remember(h)
	m.times = min(m.times+1, timesToHighest)
	return time.Duration(m.times) * firstFloor
}
