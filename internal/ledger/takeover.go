package ledger

import (
	"slices"
	"time"
)

// A takeover is the state of an exclusive Source that waits for the messages of the previous owner.
type takeover struct {
	takingOver    bool          // ordered messages don't start yet, see TakeOver
	counted       bool          // the broker reports how many messages are outstanding, see Outstanding
	slowly        bool          // each Receive asks for only one message, because the last one returned a new one
	takeoverAlarm alarm         // ends the takeover if nothing else does
	takeoverEnd   Instant       // when the takeover ends, unless more outstanding messages arrive
	waited        time.Duration // how long Receives have waited without returning anything
}

// TakeoverWait is the longest that a Receive takes to return messages that are due. If Receives
// have waited longer than that in vain, none are due. Drivers of brokers that may redeliver in a
// different order wait for half a second, which is well within it.
const TakeoverWait = 900 * time.Millisecond

// takeoverIdle is how long a takeover lasts after the final call to Receive or Outstanding. There
// may be no further call: the messages already held can exhaust the limiter's bytes.
const takeoverIdle = 5 * time.Second

// TakeOver keeps ordered messages from starting until all messages of the previous owner have
// arrived. Call it after Add.
//
// A broker may redeliver those messages in any order. If it reports how many are outstanding, the
// takeover lasts until that many have arrived. It also ends when none has arrived for a whole
// lease: by then the broker has noticed that all leases of the previous owner have expired. It
// can't wait for the full count, because that includes messages that wait for a retry without a
// member. If the broker reports no count, a new message shows that none are left, because apart
// from rare cases brokers redeliver before they deliver new messages. So does a Receive that waited
// in vain.
func (l *Ledger) TakeOver(s *Source) {
	s.takingOver = true
	s.takeoverAlarm.ring = func(Instant) { l.endTakeover(s) }
	l.extendTakeover(s)
	l.set(&s.takeoverAlarm, s.takeoverEnd)
}

// Outstanding records that n messages of s are delivered but not settled, according to a count that
// the broker made after the last Receive.
func (l *Ledger) Outstanding(s *Source, n int) {
	if !s.takingOver || s.ending {
		return
	}
	s.counted = true
	for _, h := range l.held {
		if h.Source == s && h.unsettled() {
			n--
		}
	}
	if n <= 0 {
		l.endTakeover(s)
	} else {
		l.setTakeoverAlarm(s)
	}
}

// Uncounted records that the broker doesn't report how many messages of s are outstanding.
func (s *Source) Uncounted() { s.counted = false }

// unsettled reports whether it is certain that the broker hasn't settled the message of h.
func (h *Hold) unsettled() bool {
	if h.lost || h.leaseless || h.Unsure {
		return false
	}
	return h.state < taken || h.state <= entrusted && !h.Source.ledger.Single // with Single, a taken one may have been acknowledged before its run
}

// extendTakeover prolongs the takeover of s, because outstanding messages have arrived.
func (l *Ledger) extendTakeover(s *Source) { s.takeoverEnd = l.Now.Plus(l.Lease + TakeoverWait) }

// setTakeoverAlarm sets the alarm that ends the takeover of s.
func (l *Ledger) setTakeoverAlarm(s *Source) {
	l.set(&s.takeoverAlarm, min(l.Now.Plus(takeoverIdle), max(s.takeoverEnd, l.Now+1)))
}

// TakingOver reports whether s is still waiting for messages of the previous owner.
func (s *Source) TakingOver() bool { return s.takingOver }

// Waited records that a Receive of s waited for d and found nothing due.
func (l *Ledger) Waited(s *Source, d time.Duration) {
	if !s.takingOver || s.ending {
		return
	}
	if s.slowly = false; s.counted {
		return
	}
	if s.waited += d; s.waited >= TakeoverWait {
		l.endTakeover(s)
	}
}

// receivedInTakeover ends the takeover of s if r shows that all messages have arrived, or if
// nothing more can be read.
func (l *Ledger) receivedInTakeover(s *Source, r Receipt, fresh bool) {
	s.waited, s.slowly = 0, fresh
	if slices.ContainsFunc(r.Holds, func(h *Hold) bool { return h.lane != nil && h.Delivery.Redelivered }) {
		l.extendTakeover(s)
	}
	if !s.counted && (fresh || r.All) || l.crowded && s.parked > 0 {
		l.endTakeover(s)
	} else {
		l.setTakeoverAlarm(s)
	}
}

// endTakeover allows the messages of s to run.
func (l *Ledger) endTakeover(s *Source) {
	s.takingOver = false
	l.set(&s.takeoverAlarm, 0)
	lanes := make([]*lane, 0, len(s.lanes))
	for _, n := range s.lanes {
		lanes = append(lanes, n)
	}
	for _, n := range lanes {
		l.advance(n)
	}
	l.wakeWorker()
}
