package ledger

import (
	"slices"
	"strings"
)

// A Source is one attachment to a group. Its messages have an order of their own.
//
// The messages of an exclusive Source go to no other member until it ends. A message whose key has
// an order therefore waits for its retry here, in this member. When the source ends, all messages
// are given back at once, in their order: otherwise another member would get later ones of their
// key first.
type Source struct {
	CanDelay  bool
	CanExtend bool
	Refunds   bool // messages are given back without counting an attempt, and redelivered by position
	Exclusive bool // until it ends, no other member gets its messages; Refunds is not set
	Owner     any  // the caller's

	ledger       *Ledger
	ready        readyQueues
	lanes        map[string]*lane // by key
	free         []*lane          // lanes whose memory is used again
	memory       map[string]*memo // by position
	dueStubs     []*stub          // stubs of messages that are due
	late         []string         // positions of late acknowledgements, see ackedLate
	last         string           // the highest position received
	fetcherWaits bool             // its fetcher waits until it may read
	hasReady     bool             // Ledger.lines has it
	parked       int              // its Holds without a slot
	reserved     int              // messages that the Receive under way asks for, if Ledger.asked counts them
	barren       uint8            // how many of the last Receives brought nothing that may run
	held         int              // Holds
	leased       Instant          // when the leases of the messages have surely ended that were released unsettled
	revoked      bool
	ending       bool // an effect Emptied follows when there is no Hold
	takeover
}

// Add adds s, which takes part until Remove.
func (l *Ledger) Add(s *Source) {
	s.ledger = l
	s.lanes, s.memory = map[string]*lane{}, map[string]*memo{}
	l.sources = append(l.sources, s)
}

// Replace puts s in place of the source old, whose group was lost. All Holds of old lose their
// leases, for the reason why. If fresh is set, the topic is a new one. Replace returns how many
// leases were lost.
func (l *Ledger) Replace(old, s *Source, fresh bool, why error) (lost int) {
	for i := range l.sources {
		if l.sources[i] == old {
			l.sources[i] = s
		}
	}
	l.waitingFetchers = slices.DeleteFunc(l.waitingFetchers, func(o *Source) bool { return o == old })
	l.Unreserve(old)
	s.ledger, s.last, s.lanes, s.memory = l, old.last, map[string]*lane{}, old.memory
	if fresh {
		s.last, s.memory = "", map[string]*memo{}
	}
	for key, n := range old.lanes {
		for len(n.stubs) > 0 {
			old.resolve(n.stubs[0])
		}
		if n.failed {
			s.FailKeys(key)
		}
	}
	old.memory = s.memory
	return l.LoseAll(old, why)
}

// Last returns the highest position received; "": none.
func (s *Source) Last() string { return s.last }

// A Receipt is the answer to a Receive.
type Receipt struct {
	Holds []*Hold
	Asked Instant // when Receive was called; a later call has a greater Instant
	All   bool    // it brought all messages that were due when it was called
}

// CorrectAttempts sets Attempt of the Holds of r from what s remembers, before Put, and calls
// changed for each Hold that it changes.
func (s *Source) CorrectAttempts(r Receipt, changed func(h *Hold)) {
	s.recordPositions(r)
	if len(s.memory) == 0 {
		return
	}
	for _, h := range r.Holds {
		if n := s.attemptOf(&h.Delivery); n != h.Attempt {
			h.Attempt = n
			changed(h)
		}
	}
}

// recordPositions records the highest position received. A message that comes for the first time,
// but not after that position, shows that the group was reset and starts again there.
func (s *Source) recordPositions(r Receipt) {
	before := s.last
	for _, h := range r.Holds {
		if !h.Delivery.Redelivered && h.Delivery.Position <= before {
			before = ""
			break
		}
	}
	highest := ""
	for _, h := range r.Holds { // nearly always by position
		if p := h.Delivery.Position; before < p {
			h.before = max(before, highest)
		} else if highest < p {
			h.before = highest
		}
		highest = max(highest, h.Delivery.Position)
	}
	s.last = strings.Clone(max(before, highest)) // it may share its memory with all texts of the Receive
}

// Put takes the messages of a Receive.
func (l *Ledger) Put(s *Source, r Receipt) {
	l.reserved, s.reserved = l.reserved-s.reserved, 0
	highest, fresh := "", false
	var touched []*lane
	until := r.Asked.Plus(l.Lease)
	for _, h := range r.Holds {
		h.asked, h.came, h.until = r.Asked, l.Now, until
		l.addHold(h)
		highest, fresh = max(highest, h.Delivery.Position), fresh || !h.Delivery.Redelivered
		switch {
		case s.acknowledged(h.Delivery.Position, r.Asked):
			h.lost = true
			l.Release(h, LeaseLost(ErrAckedBefore))
			s.remember(h).until = 0 // it is settled
		case l.closed || s.revoked:
			l.giveBack(h, 0)
		case h.Unfit:
			h.state = settling
			l.do(Effect{Kind: Refuse, Hold: h})
		default:
			n := s.laneOf(h)
			if n == nil {
				l.admit(h)
				continue
			}
			if !n.touched { // before joinLane, which may end the last Hold of the lane
				n.touched, touched = true, append(touched, n)
			}
			s.joinLane(h, n)
		}
	}
	for _, n := range touched {
		n.touched = false
		l.advance(n)
	}
	if s.takingOver {
		l.receivedInTakeover(s, r, fresh)
	}
	s.resolvePassed(r.Asked, highest, r.All, fresh)
	s.forgetAcked(r.Asked)
	if len(l.held) > 0 {
		l.ringBy(&l.leases, until)
		if l.extension.at == 0 && s.CanExtend {
			l.set(&l.extension, l.Now.Plus(l.Lease/3))
		}
	}
	for _, h := range r.Holds {
		l.park(h)
	}
	if s.barren = min(s.barren+1, mostBarren); len(r.Holds) == 0 || l.startableOf(s) > 0 {
		s.barren = 0
	}
	l.spillRedelivered(s)
	l.wakeWorker()
	l.watchUnclaimed()
	l.wakeFetchers()
}

// startsNothing reports whether no message of s that has an order may begin yet.
func (s *Source) startsNothing() bool { return s.revoked || s.takingOver }

// End asks for an effect Emptied once the revoked source s has no Hold left. No message of s
// arrives after it.
func (l *Ledger) End(s *Source) {
	s.ending = true
	if l.set(&s.takeoverAlarm, 0); s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// LeasedUntil returns when no message of s is leased to this member any more, if s has no Hold.
func (s *Source) LeasedUntil() Instant { return s.leased }

// countRelease records that h, a Hold of its source, is released with the result err.
func (l *Ledger) countRelease(h *Hold, err error) {
	s := h.Source
	s.held--
	if err != nil && !h.leaseless {
		s.leased = max(s.leased, l.LeaseEnd(h))
	}
	if s.ending && s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// returnsAtOnce reports whether h has to be given back without a delay, see [Source].
func (h *Hold) returnsAtOnce() bool { return h.Source.Exclusive && h.lane != nil }

// Revoke lets no further Hold of s start, and gives back those that have not started. Its other
// Holds stay until they are settled. Other sources are not affected.
func (l *Ledger) Revoke(s *Source) {
	s.revoked = true
	for _, n := range s.lanes {
		for len(n.stubs) > 0 { // otherwise their alarms would keep ringing
			s.resolve(n.stubs[0])
		}
	}
	l.giveBackUnstarted(s, false)
	l.sources = slices.DeleteFunc(l.sources, func(o *Source) bool { return o == s })
	l.waitingFetchers = slices.DeleteFunc(l.waitingFetchers, func(o *Source) bool { return o == s })
	l.Unreserve(s)
	l.wakeWorker() // for Holds of other sources that were taken from slices
}
