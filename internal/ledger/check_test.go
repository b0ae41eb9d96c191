package ledger

import (
	"fmt"
	"slices"
)

// check returns a sentence about the first inconsistency in l, or "" if there is none.
func (l *Ledger) check() string {
	for _, h := range l.held {
		n := h.lane
		if n == nil {
			continue
		}
		switch in, active := slices.Contains(n.queue, h), n.head == h || slices.Contains(n.next, h); {
		case h.Source.lanes[n.key] != n:
			return fmt.Sprintf("message %s is in a lane that was dropped", h.Delivery.Position)
		case in != (h.state == waiting):
			return fmt.Sprintf("message %s, state %d, in the queue of its lane: %v", h.Delivery.Position, h.state, in)
		case active == in:
			return fmt.Sprintf("message %s, state %d, active and in the queue: %v", h.Delivery.Position, h.state, in)
		}
	}
	for _, s := range l.sources {
		for key, n := range s.lanes {
			for _, h := range append(slices.Clone(n.next), n.head) {
				if h != nil && (h.lane != n || h.state == released) {
					return fmt.Sprintf("lane %q has message %s, which has left it", key, h.Delivery.Position)
				}
			}
		}
	}
	return ""
}

// dump describes a ledger for a failed test.
func (l *Ledger) dump() string {
	s := fmt.Sprintf("now %v closed %v workers %d idle %d busy %d waking %v working %d stuck %d blocked %d parked %d running %v average %v chasing %d crowded %v next %v\n", l.Now, l.closed, l.workers, len(l.idle), len(l.busy), l.waking, l.working, l.stuck, l.blocked, l.parked, l.running, l.average, l.chasing, l.crowded, l.Next())
	for _, src := range l.sources {
		s += fmt.Sprintf("source waits %v line %d %d %d passing %d wanted %d\n", src.fetcherWaits, src.ready[0].len(), src.ready[1].len(), src.ready[2].len(), len(src.dueStubs), l.wanted(src))
		for k, n := range src.lanes {
			s += fmt.Sprintf("  lane %q active %v queue %d over %v\n", k, n.head != nil, len(n.queue), n.over)
			for _, st := range n.stubs {
				s += fmt.Sprintf("    stub %s until %v rings %v\n", st.position, st.until, st.alarm.at)
			}
		}
	}
	for _, h := range l.held {
		s += fmt.Sprintf("  hold %s state %d class %d lost %v parked %v due %v until %v attempt %d worker %v\n", h.Delivery.ID, h.state, h.class, h.lost, h.parked, h.Due, h.until, h.Attempt, h.worker != nil)
	}
	return s
}
