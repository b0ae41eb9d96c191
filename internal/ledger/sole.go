package ledger

import "time"

// sole has the parts of a Source with Sole set: its messages go to no other member until it ends.
// So a message of an order waits in this member for its retry. When the source ends, all messages
// are given back at once, in their order, because another member would otherwise get later ones
// of their key first.
type sole struct {
	held    int           // Holds
	leased  Moment        // when the leases of the messages have surely ended that were released unsettled
	gathers bool          // no message of an order begins, see Gather
	calm    alarm         // ends the gathering if no Receive does
	waited  time.Duration // how long Receives have brought nothing
	ending  bool          // an effect Emptied follows when there is no Hold
}

// GatherTime is how long a Receive of messages that are due takes at most. If Receives have waited
// for longer, there are none that are due. Drivers whose brokers may redeliver in another
// order wait for half a second, so that their Receives have returned before.
const GatherTime = 900 * time.Millisecond

// gatherRest is how long a source gathers after a Receive, if no other one ends. The messages that
// it has may use all bytes that the limiter gives, so that there is no other one.
const gatherRest = 5 * time.Second

// Gather lets no message of an order begin until all messages have arrived that an earlier
// member had. A broker may redeliver them in any order, but before new messages. The caller
// calls it after Add.
func (x *intake) Gather(s *Source) {
	s.gathers = true
	s.calm.ring = func(Moment) { x.gathered(s) }
}

// Gathers reports whether s gathers.
func (s *Source) Gathers() bool { return s.gathers }

// Waited notes that a Receive of s has waited for d, and that nothing was due.
func (x *intake) Waited(s *Source, d time.Duration) {
	if !s.gathers || s.ending {
		return
	}
	if s.waited += d; s.waited >= GatherTime {
		x.gathered(s)
	}
}

// collected ends the gathering of s if r brought all messages that are due, or a new one.
func (x *intake) collected(s *Source, r Receipt, fresh bool) {
	l := x.ledger
	if s.waited = 0; fresh || r.All || l.crowded && s.parked > 0 {
		x.gathered(s)
	} else {
		l.set(&s.calm, l.Now.Plus(gatherRest))
	}
}

func (x *intake) gathered(s *Source) {
	l := x.ledger
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
func (x *leasing) End(s *Source) {
	l := x.ledger
	s.ending = true
	if l.set(&s.calm, 0); s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// LeasedUntil returns when no message of s is leased to this member any more, if s has no Hold.
func (s *Source) LeasedUntil() Moment { return s.leased }

// releases notes that h, which s had, is released with the result err.
func (x *leasing) releases(h *Hold, err error) {
	l, s := x.ledger, h.Source
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
