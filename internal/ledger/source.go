package ledger

import (
	"slices"
	"strings"
)

// A Source is one attachment to a group. Its messages are ordered independently of other sources.
//
// While a source is exclusive, no other member gets its messages. An ordered message therefore
// waits for its retry here, in this member. When the source ends, all its messages are given back
// without a delay and in order; otherwise another member could get later messages of a key first.
type Source struct {
	CanDelay  bool
	CanExtend bool
	Refunds   bool // messages are given back without counting an attempt, and redelivered in the order of positions
	Exclusive bool // no other member gets its messages until it ends; never combined with Refunds
	Owner     any  // a value of the caller

	ledger       *Ledger
	ready        readyQueues
	lanes        map[string]*lane // by key
	free         []*lane          // lanes for reuse
	memory       map[string]*memo // by position
	dueStubs     []*stub          // stubs whose messages are due
	late         []string         // positions that were acknowledged late, see ackedLate
	last         string           // the highest position received
	fetcherWaits bool             // its fetcher waits for permission to read
	hasReady     bool             // it is in Ledger.withReady
	parked       int              // how many of its Holds have no slot
	reserved     int              // how many messages the current Receive has reserved, see Reserve
	barren       uint8            // how many Receives in a row returned messages none of which could start; each doubles the next one
	held         int              // how many Holds it has
	leased       Instant          // when the leases of all messages that were released unsettled have certainly expired
	revoked      bool
	ending       bool // an Emptied effect follows as soon as no Hold is left
	takeover
}

// Add adds s to the sources of the ledger.
func (l *Ledger) Add(s *Source) {
	s.ledger = l
	s.lanes, s.memory = map[string]*lane{}, map[string]*memo{}
	l.sources = append(l.sources, s)
}

// Replace replaces the source old, whose group was lost, with s. All Holds of old lose their
// leases, for the reason why. fresh says whether the topic is a new one. Replace returns how many
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

// Last returns the highest position received, or "" if there is none.
func (s *Source) Last() string { return s.last }

// A Receipt is the result of a Receive.
type Receipt struct {
	Holds []*Hold
	Asked Instant // when Receive was called; a later call has a greater Instant
	All   bool    // it returned all messages that were due when it was called
}

// CorrectAttempts corrects Attempt in the Holds of r by what s remembers, and calls changed for
// each Hold that it changes. Call it before Put.
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

// recordPositions records the highest position received. If a message is delivered for the first
// time but isn't past that position, the group was reset and starts again there.
func (s *Source) recordPositions(r Receipt) {
	before := s.last
	for _, h := range r.Holds {
		if !h.Delivery.Redelivered && h.Delivery.Position <= before {
			before = ""
			break
		}
	}
	highest := ""
	for _, h := range r.Holds { // almost always sorted by position
		if p := h.Delivery.Position; before < p {
			h.before = max(before, highest)
		} else if highest < p {
			h.before = highest
		}
		highest = max(highest, h.Delivery.Position)
	}
	s.last = strings.Clone(max(before, highest)) // the string may share its memory with all strings of the Receive
}

// Put adds the messages of a Receive.
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
			s.remember(h).until = 0 // the message is settled
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
			if !n.touched { // before joinLane, which may remove the last Hold of the lane
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

// startsNothing reports whether ordered messages of s must not start yet.
func (s *Source) startsNothing() bool { return s.revoked || s.takingOver }

// End requests an Emptied effect for when the revoked source s has no Hold left. No message of s
// may arrive after that.
func (l *Ledger) End(s *Source) {
	s.ending = true
	if l.set(&s.takeoverAlarm, 0); s.held == 0 {
		l.do(Effect{Kind: Emptied, Source: s})
	}
}

// LeasedUntil returns when the last lease of this member on messages of s has certainly expired,
// provided that s has no Hold.
func (s *Source) LeasedUntil() Instant { return s.leased }

// countRelease records that h, one of its source's Holds, is released with the result err.
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

// returnsAtOnce reports whether h must be given back without a delay; see [Source].
func (h *Hold) returnsAtOnce() bool { return h.Source.Exclusive && h.lane != nil }

// Revoke stops the ledger from starting Holds of s, and gives back those that haven't started. The
// others stay held until they are settled. Other sources are not affected.
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
	l.wakeWorker() // for Holds of other sources that were taken back from slices
}
