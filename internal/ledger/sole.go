package ledger

import (
	"slices"
	"time"
)

// sole has the parts of a Source with Sole set: its messages go to no other member until it ends.
// So a message of an order waits in this member for its retry. When the source ends, all messages
// are given back at once, in their order, because another member would otherwise get later ones
// of their key first.
type sole struct {
	held    int           // Holds
	leased  Moment        // when the leases of the messages have surely ended that were released unsettled
	gathers bool          // no message of an order begins, see Gather
	counted bool          // the broker tells how many messages are to be gathered, see Outstanding
	slowly  bool          // a Receive asks for one message, because the last one brought a new one
	calm    alarm         // ends the gathering if nothing else does
	latest  Moment        // when the gathering ends, unless messages arrive for which it waits
	waited  time.Duration // how long Receives have brought nothing
	ending  bool          // an effect Emptied follows when there is no Hold
}

// GatherTime is how long a Receive of messages that are due takes at most. If Receives have waited
// for longer, there are none that are due. Drivers whose brokers may redeliver in another
// order wait for half a second, so that their Receives have returned before.
const GatherTime = 900 * time.Millisecond

// gatherRest is how long a source gathers after a Receive or Outstanding, if there is no other one. The
// messages that it has may use all bytes that the limiter gives, so that there is no other one.
const gatherRest = 5 * time.Second

// Gather lets no message of an order begin until all messages have arrived that an earlier
// member had. The caller calls it after Add.
//
// A broker may redeliver them in any order. If it tells how many there are (Outstanding), the source
// gathers until it has as many. It ends if none arrives for a lease, in which the broker has
// noticed that all leases of the earlier member have ended. Messages that wait for a retry without a
// member are in the number too. If the broker tells none, a new message or a Receive that has waited shows
// that none are left: brokers redeliver messages before new ones, apart from rare cases.
func (l *Ledger) Gather(s *Source) {
	s.gathers = true
	s.calm.ring = func(Moment) { l.gathered(s) }
	l.progresses(s)
	l.set(&s.calm, s.latest)
}

// Outstanding notes that n messages of s were delivered and not settled, by the broker's count at a
// moment since the last Receive.
func (l *Ledger) Outstanding(s *Source, n int) {
	if !s.gathers || s.ending {
		return
	}
	s.counted = true
	for _, h := range l.held {
		if h.Source == s && h.unsettled() {
			n--
		}
	}
	if n <= 0 {
		l.gathered(s)
	} else {
		l.lull(s)
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
func (l *Ledger) progresses(s *Source) { s.latest = l.Now.Plus(l.Lease + GatherTime) }

// lull sets the alarm that ends the gathering of s.
func (l *Ledger) lull(s *Source) {
	l.set(&s.calm, min(l.Now.Plus(gatherRest), max(s.latest, l.Now+1)))
}

// Gathers reports whether s gathers.
func (s *Source) Gathers() bool { return s.gathers }

// Waited notes that a Receive of s has waited for d, and that nothing was due.
func (l *Ledger) Waited(s *Source, d time.Duration) {
	if !s.gathers || s.ending {
		return
	}
	if s.slowly = false; s.counted {
		return
	}
	if s.waited += d; s.waited >= GatherTime {
		l.gathered(s)
	}
}

// collected ends the gathering of s if r shows that all messages have arrived, or if there is no room
// for more.
func (l *Ledger) collected(s *Source, r Receipt, fresh bool) {
	s.waited, s.slowly = 0, fresh
	if slices.ContainsFunc(r.Holds, func(h *Hold) bool { return h.lane != nil && h.Delivery.Redelivered }) {
		l.progresses(s)
	}
	if !s.counted && (fresh || r.All) || l.crowded && s.parked > 0 {
		l.gathered(s)
	} else {
		l.lull(s)
	}
}

func (l *Ledger) gathered(s *Source) {
	s.gathers = false
	l.set(&s.calm, 0)
	lanes := make([]*lane, 0, len(s.lanes))
	for _, n := range s.lanes {
		lanes = append(lanes, n)
	}
	for _, n := range lanes {
		l.advance(n)
	}
	l.rouse()
}

// holds reports whether a message of s may not begin yet.
func (s *Source) holds() bool { return s.revoked || s.gathers }

// End asks for an effect Emptied when the revoked source s has no Hold any more. No message of
// s arrives after it.
func (l *Ledger) End(s *Source) {
	s.ending = true
	if l.set(&s.calm, 0); s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// LeasedUntil returns when no message of s is leased to this member any more, if s has no Hold.
func (s *Source) LeasedUntil() Moment { return s.leased }

// releases notes that h, which s had, is released with the result err.
func (l *Ledger) releases(h *Hold, err error) {
	s := h.Source
	s.held--
	if err != nil && !h.leaseless {
		s.leased = max(s.leased, l.LeaseEnd(h))
	}
	if s.ending && s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// handsOver reports whether h is to be given back without a delay.
func (h *Hold) handsOver() bool { return h.Source.Sole && h.lane != nil }
