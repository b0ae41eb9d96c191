package ledger

import (
	"slices"
	"strings"
	"time"
)

// A Source is one attachment to a group. Its messages have an order of their own.
type Source struct {
	CanDelay  bool
	CanExtend bool
	Refunds   bool // messages are given back without counting an attempt, and redelivered by position
	Sole      bool // no other member gets its messages, until it ends; Refunds is not set
	Of        any  // the caller's

	ledger  *Ledger
	line    line
	lanes   map[string]*lane // by key
	free    []*lane          // lanes whose memory is used again
	memory  map[string]*memo // by position
	passing []*stub          // stubs of messages that are due
	late    []string         // positions of late acknowledgements, see ackedLate
	last    string           // the highest position received
	waits   bool             // its fetcher waits for room
	lines   bool             // Ledger.lines has it
	parked  int              // its Holds without a place
	asked   int              // messages that the Receive under way asks for, if Ledger.asked counts them
	barren  uint8            // how many of the last Receives brought nothing that may run
	revoked bool
	sole
}

// Add adds s, which takes part until Remove.
func (l *Ledger) Add(s *Source) {
	s.ledger = l
	s.lanes, s.memory = map[string]*lane{}, map[string]*memo{}
	l.sources = append(l.sources, s)
}

// Replace puts s in the place of the source old, whose group is lost. All Holds of old lose
// their leases because of why. If fresh is set, the topic was made anew. Replace returns how
// many leases were lost.
func (l *Ledger) Replace(old, s *Source, fresh bool, why error) (lost int) {
	for i := range l.sources {
		if l.sources[i] == old {
			l.sources[i] = s
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(o *Source) bool { return o == old })
	l.Unread(old)
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

// LoseAll records that all Holds of s lost their leases because of why, and returns how many.
func (l *Ledger) LoseAll(s *Source, why error) (lost int) {
	for _, h := range slices.Clone(l.held) {
		if h.Source == s {
			lost++
			l.Lose(h, why)
		}
	}
	l.rouse()
	return lost
}

// Last returns the highest position received; "": none.
func (s *Source) Last() string { return s.last }

// A Receipt is the answer to a Receive.
type Receipt struct {
	Holds []*Hold
	Asked Moment // when Receive was called; a later call has a greater Moment
	All   bool   // it brought all messages that were due when it was called
}

// Attempted corrects Attempt of the Holds of r before Put, and calls changed for each one
// that it changes.
func (s *Source) Attempted(r Receipt, changed func(h *Hold)) {
	s.note(r)
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

// note records the highest position received. If a message comes for the first time that is
// not after it, the group was reset, and begins anew there.
func (s *Source) note(r Receipt) {
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
	l.asked, s.asked = l.asked-s.asked, 0
	highest, fresh := "", false
	var touched []*lane
	until := r.Asked.Plus(l.Lease)
	for _, h := range r.Holds {
		h.asked, h.came, h.until = r.Asked, l.Now, until
		l.hold(h)
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
	if s.gathers {
		l.collected(s, r, fresh)
	}
	s.pass(r.Asked, highest, r.All, fresh)
	s.forgetAcked(r.Asked)
	if len(l.held) > 0 {
		l.by(&l.leases, until)
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
	l.spill(s)
	l.rouse()
	l.watchHoard()
	l.roomForAll()
}

const (
	maxRead    = 512                    // the most messages in one Receive
	mostBarren = 9                      // doublings of a Receive, to pass many messages behind one of their key
	leastAhead = 5 * time.Millisecond   // the least prefetch, as the work of all workers, so that reads are large
	mostAhead  = 100 * time.Millisecond // bounds the prefetch, as the work of all workers
	hoardTime  = time.Second            // a Hold that no worker can take for so long is given back
)

// watchHoard lets giveBackHoard look when the first Hold in a line has waited for hoardTime.
func (l *Ledger) watchHoard() {
	if l.hoard.at != 0 || l.working < l.Concurrency && (l.lined[redelivered] == 0 || l.mayRun(redelivered)) {
		return
	}
	for _, s := range l.lining() {
		if s.Sole && l.working >= l.Concurrency {
			continue // no other member could have them
		}
		for c := range s.line {
			if q := &s.line[c]; class(c) != suspect && q.len() > 0 && (s.CanDelay || s.CanExtend) && (l.working >= l.Concurrency || !l.mayRun(class(c))) {
				l.by(&l.hoard, max(q.first().came.Plus(hoardTime), l.Now.Plus(hoardTime/4)))
			}
		}
	}
}

// giveBackHoard gives back the Holds that no worker could take for hoardTime, because another
// member may be idle. It raises the average, so that less is prefetched.
func (l *Ledger) giveBackHoard(now Moment) {
	for _, s := range slices.Clone(l.lining()) {
		for c := range s.line {
			l.giveBackQueue(s, class(c), now)
		}
	}
	l.watchHoard()
}

func (l *Ledger) giveBackQueue(s *Source, c class, now Moment) {
	q := &s.line[c]
	allBusy := l.working >= l.Concurrency
	if c == suspect || q.len() == 0 || q.first().came.Plus(hoardTime) > now || !allBusy && l.mayRun(c) {
		return
	}
	if !allBusy {
		for q.len() > 0 {
			l.postpone(q.first(), l.turn(q.len()), false)
		}
		return
	}
	if !s.CanDelay || s.Sole {
		return
	}
	l.average = max(l.average, hoardTime)
	l.do(Effect{Kind: EndRead, Source: s}) // otherwise this Receive would bring the same messages again
	for q.len() > 0 {
		h := q.first()
		n := h.lane
		l.giveBack(h, 0)
		for n != nil && n.head == nil && len(n.queue) > 0 {
			l.giveBack(n.queue[0], n.queue[0].Due)
		}
	}
}

// turn returns when a redelivered Hold may run before which n others wait.
func (l *Ledger) turn(n int) Moment {
	wait := time.Duration(n) * l.average / time.Duration(max(l.MaxRedelivered, 1))
	return l.Now.Plus(min(max(wait, firstFloor), mostTurn))
}

const mostTurn = 10 * time.Second

// spill postpones redelivered Holds, so that they leave places for others.
func (l *Ledger) spill(s *Source) {
	for q := &s.line[redelivered]; q.len() > max(l.MaxInFlight/4, 1); {
		l.postpone(q.last(), l.turn(q.len()), false)
	}
}
