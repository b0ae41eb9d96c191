package ledger

import (
	"slices"
	"strings"
)

// A stub stands for a message of a lane that was given back and may be redelivered. It blocks the
// later messages of the lane.
type stub struct {
	lane     *lane
	position string
	until    Instant // when the message is certainly due; zero if not known yet
	alarm    alarm
	due      bool // the message is due
}

// leaveStub leaves a stub in the lane of h, which is being given back.
func (s *Source) leaveStub(h *Hold) {
	n := h.lane
	if n == nil || s.ledger.closed || s.revoked {
		return
	}
	if len(n.stubs) == 0 {
		s.cloneKey(n)
	}
	st := &stub{lane: n, position: strings.Clone(h.Delivery.Position)}
	st.alarm.ring = func(now Instant) { s.ringStub(st, now) }
	if l := s.ledger; l.crowded && s.Refunds { // messages that arrive now may overflow
		l.setCrowded(false)
	}
	i, _ := n.find(st.position)
	n.stubs = slices.Insert(n.stubs, i, st)
	h.stub = st
}

// stubDue records when the message of h, which was given back, is certainly due.
func (l *Ledger) stubDue(h *Hold, at Instant) {
	if o := h.over; o != nil {
		h.over = nil
		o.calls--
		if h.chases {
			h.chases = false
			l.chasing--
		}
		o.until = max(o.until, at, l.Now)
	}
	if st := h.stub; st != nil && st.lane != nil {
		h.stub = nil
		st.until = at
		l.set(&st.alarm, at)
	}
}

// ringStub is called when the message of st is due, and once every grace period after that.
func (s *Source) ringStub(st *stub, now Instant) {
	switch l, n := s.ledger, st.lane; {
	case !st.due:
		st.due = true
		s.dueStubs = append(s.dueStubs, st)
		l.set(&st.alarm, now.Plus(grace))
	case len(n.queue) == 0:
		l.set(&st.alarm, now.Plus(grace))
	default: // the queue is redelivered: the Receive that returns it also returns st, or shows that another member has it
		l.set(&st.alarm, now.Plus(grace))
		l.do(Effect{Kind: EndRead, Source: s})
		for n.head == nil && len(n.queue) > 0 {
			l.giveBack(n.queue[0], n.queue[0].Due)
		}
	}
}

// resolvePassed resolves the stubs whose messages are held by another member. A Receive returns the
// lowest positions that are due. This one, called at asked, would therefore have returned such a
// message if it was due: it covered everything up to the position highest or, if all is set,
// everything. fresh means that it returned a new message.
func (s *Source) resolvePassed(asked Instant, highest string, all, fresh bool) {
	if len(s.dueStubs) == 0 {
		return
	}
	var lanes []*lane
	s.dueStubs = slices.DeleteFunc(s.dueStubs, func(st *stub) bool {
		n := st.lane
		gone := n == nil || st.until < asked && (all || st.position < highest)
		if !s.Refunds && n != nil { // it redelivers in no particular order, but before new messages
			gone = st.until.Plus(grace) <= asked && (all || fresh)
		}
		if gone && n != nil {
			s.resolve(st)
			if !n.touched {
				n.touched, lanes = true, append(lanes, n)
			}
		}
		return gone
	})
	for _, n := range lanes {
		n.touched = false
		s.ledger.advance(n)
	}
}

// resolve removes st from its lane.
func (s *Source) resolve(st *stub) {
	n := st.lane
	if n == nil {
		return
	}
	s.ledger.set(&st.alarm, 0)
	i := slices.Index(n.stubs, st)
	n.stubs = slices.Delete(n.stubs, i, i+1)
	st.lane = nil
}

// BlockingPositions returns the positions of messages of s that were given back and are blocking
// later messages with their key, at most limit of them.
func (l *Ledger) BlockingPositions(s *Source, limit int) (positions []string) {
	for _, n := range s.lanes {
		for i := 0; i < len(n.stubs) && len(n.queue) > 0 && len(positions) < limit; i++ {
			positions = append(positions, n.stubs[i].position)
		}
	}
	return positions
}

// SettledElsewhere records that messages of s that were given back have been settled by someone
// else, and won't be redelivered.
func (l *Ledger) SettledElsewhere(s *Source, positions []string) {
	var freed []*lane
	for _, n := range s.lanes {
		before := len(n.stubs)
		for _, st := range slices.Clone(n.stubs) {
			if slices.Contains(positions, st.position) {
				s.resolve(st)
			}
		}
		if len(n.stubs) < before {
			freed = append(freed, n)
		}
	}
	for _, n := range freed {
		l.advance(n)
	}
	l.wakeWorker()
}
