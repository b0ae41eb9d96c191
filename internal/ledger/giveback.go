package ledger

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Postpone schedules the redelivery of h for due. counts says whether h has used up an attempt. If
// the lease of h is lost, Postpone just releases it.
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

// postpone gives h back if the backend refunds attempts and redelivers in order, or if h isn't
// ordered. Otherwise h waits for its retry in this member. If neither is possible, h is redelivered
// when its lease expires.
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

// ErrNotStarted is the error for a message that a member doesn't settle because it is shutting
// down.
var ErrNotStarted = errors.New("eventbus: shutting down")

// giveBack passes h to the Delay queue and leaves a stub in its lane, which blocks later messages
// with the same key. postpone chooses between giveBack and retryHere.
func (l *Ledger) giveBack(h *Hold, due Instant) {
	h.Source.leaveStub(h)
	h.leave()
	l.takeFromWorker(h)
	h.state, h.Due, h.returning = settling, due, true
	l.do(Effect{Kind: GiveBack, Hold: h})
}

// retryHere keeps h in this member until it is due. Its earlier run loses its Hold.
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

// BeforeDelay prepares h for a Delay call. If the call doesn't refund an attempt that h hasn't used
// up, BeforeDelay makes sure that the next receipt doesn't count it.
func (l *Ledger) BeforeDelay(h *Hold, refunds bool) {
	if !h.Counted && !refunds { // before the call, because the message may be redelivered before the answer arrives
		h.Source.expect(h, h.Attempt)
	}
}

// MarkUnknown records that a call may have settled h. If that call was a Delay, h is due once the
// given time has passed, at the latest.
func (l *Ledger) MarkUnknown(h *Hold, after time.Duration) {
	h.Unsure = true
	if h.returning {
		h.dueIfDelayed = max(h.dueIfDelayed, l.Now.Plus(after))
	}
}

// Delayed records that h was given back and is due at the given time.
func (l *Ledger) Delayed(h *Hold, due Instant) {
	h.Source.remember(h).due(due)
	l.stubDue(h, due)
	l.Release(h, nil)
}

// NotDelayed records that err prevents h from being given back. h is redelivered when its lease
// expires. If another member already has it, the lease is lost.
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

// Floor counts a run of h after which h is given back, and returns the shortest delay allowed before the
// redelivery of h: 10 ms the first time, and 10 ms more for each repeat, up to 50 ms. Without this
// floor, a handler that asks for no delay would keep a CPU or the broker busy.
func (l *Ledger) Floor(h *Hold) time.Duration {
	m := h.Source.remember(h)
	m.times = min(m.times+1, timesToHighest)
	return time.Duration(m.times) * firstFloor
}
