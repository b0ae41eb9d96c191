package ledger

import "fmt"

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
