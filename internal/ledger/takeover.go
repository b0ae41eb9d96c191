package ledger

import (
	"slices"
	"time"
)

// A takeover is the part of an exclusive Source that waits for the messages of an earlier owner.
type takeover struct {
	takingOver    bool          // no message of an order begins, see Gather
	counted       bool          // the broker tells how many messages are to be gathered, see Outstanding
	slowly        bool          // a Receive asks for one message, because the last one brought a new one
	takeoverAlarm alarm         // ends the gathering if nothing else does
	takeoverEnd   Instant       // when the gathering ends, unless messages arrive for which it waits
	waited        time.Duration // how long Receives have brought nothing
}

// TakeoverWait is how long a Receive of messages that are due takes at most. If Receives have waited
// for longer, there are none that are due. Drivers whose brokers may redeliver in another
// order wait for half a second, so that their Receives have returned before.
const TakeoverWait = 900 * time.Millisecond

// takeoverIdle is how long a source gathers after a Receive or Outstanding, if there is no other one. The
// messages that it has may use all bytes that the limiter gives, so that there is no other one.
const takeoverIdle = 5 * time.Second

// Gather lets no message of an order begin until all messages have arrived that an earlier
// member had. The caller calls it after Add.
//
// A broker may redeliver them in any order. If it tells how many there are (Outstanding), the source
// gathers until it has as many. It ends if none arrives for a lease, in which the broker has
// noticed that all leases of the earlier member have ended. Messages that wait for a retry without a
// member are in the number too. If the broker tells none, a new message or a Receive that has waited shows
// that none are left: brokers redeliver messages before new ones, apart from rare cases.
func (l *Ledger) TakeOver(s *Source) {
	s.takingOver = true
	s.takeoverAlarm.ring = func(Instant) { l.endTakeover(s) }
	l.extendTakeover(s)
	l.set(&s.takeoverAlarm, s.takeoverEnd)
}

// Outstanding notes that n messages of s were delivered and not settled, by the broker's count at a
// moment since the last Receive.
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

// Uncounted notes that the broker does not tell how many messages of s are outstanding.
func (s *Source) Uncounted() { s.counted = false }

// unsettled reports whether the broker certainly has not settled the message of h.
func (h *Hold) unsettled() bool {
	if h.lost || h.leaseless || h.Unsure {
		return false
	}
	return h.state < taken || h.state <= entrusted && !h.Source.ledger.Single // a Single one may be acknowledged before its run
}

// progresses prolongs the gathering of s, because messages have arrived for which it waits.
func (l *Ledger) extendTakeover(s *Source) { s.takeoverEnd = l.Now.Plus(l.Lease + TakeoverWait) }

// lull sets the alarm that ends the gathering of s.
func (l *Ledger) setTakeoverAlarm(s *Source) {
	l.set(&s.takeoverAlarm, min(l.Now.Plus(takeoverIdle), max(s.takeoverEnd, l.Now+1)))
}

// Gathers reports whether s gathers.
func (s *Source) TakingOver() bool { return s.takingOver }

// Waited notes that a Receive of s has waited for d, and that nothing was due.
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

// collected ends the gathering of s if r shows that all messages have arrived, or if there is no room
// for more.
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
