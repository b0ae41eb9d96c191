package ledger

import (
	"slices"
	"strings"
	"time"
)

// A lane holds the messages of one key in the order of their positions. A message starts only once
// the previous one has finished; the ones behind it stay held.
//
// A message that this member has given back leaves a stub in its lane. Later messages with the key
// wait until the stub is resolved, that is, until the message has been redelivered or is known to
// be held by another member.
type lane struct {
	key      string
	source   *Source
	active           // Holds that are ready, taken or entrusted, or whose settlement must finish before the next message runs
	queue    []*Hold // waiting
	withSlot int     // how many Holds of the queue have a slot
	stubs    []*stub
	over     *overflow // nil if it has none
	failed   bool      // a message with the key has failed permanently (FailAll)
	touched  bool      // one of its messages has arrived during the current Put
	alarm    *alarm
}

// An active is a list of Holds in the order in which they start. A lane has several of them only
// while they follow each other in the slice of one worker.
type active struct {
	head *Hold   // nil if the list is empty
	next []*Hold // behind head
}

func (a *active) add(h *Hold) {
	if a.head == nil {
		a.head = h
	} else {
		a.next = append(a.next, h)
	}
}

func (a *active) remove(h *Hold) {
	switch i := slices.Index(a.next, h); {
	case i >= 0:
		a.next = slices.Delete(a.next, i, i+1)
	case a.head != h:
	case len(a.next) > 0:
		a.head = a.next[0]
		a.next = slices.Delete(a.next, 0, 1)
	default:
		a.head = nil
	}
}

const (
	grace    = time.Second // how long a stub waits for a message that is due
	maxSlack = time.Second
)

// laneOf returns the lane of h, which it creates if needed, or nil if h isn't ordered.
func (s *Source) laneOf(h *Hold) *lane {
	key := h.Delivery.Key
	switch s.ledger.Order {
	case Unordered:
		return nil
	case Total:
		key = ""
	case ByKey:
		if key == "" {
			return nil
		}
	}
	if n := s.lanes[key]; n != nil {
		return n
	}
	n := &lane{}
	if last := len(s.free) - 1; last >= 0 {
		n, s.free = s.free[last], s.free[:last]
	}
	n.key, n.source = key, s
	s.lanes[key] = n
	return n
}

// joinLane puts h, which has just arrived, into its lane.
func (s *Source) joinLane(h *Hold, n *lane) {
	h.lane = n
	if s.ledger.overflows(h, n) {
		return
	}
	if i, found := n.find(h.Delivery.Position); found {
		s.resolve(n.stubs[i])
	} else if i < len(n.stubs) && !h.Delivery.Redelivered { // a new message with a lower position than one already received: the group was reset
		for len(n.stubs) > 0 {
			s.resolve(n.stubs[0])
		}
	}
	n.dropEarlier(h.Delivery.Position)
	if h.Delivery.Redelivered && n.head != nil && n.head.worker != nil { // h may belong before one that has not started
		s.ledger.collect(n.head.worker)
		if n.head != nil && n.head.worker != nil {
			s.ledger.steal(n.head.worker)
		}
	}
	s.ledger.startWaiting(h)
	if head := n.head; head != nil && head.state == ready && h.Delivery.Position < head.Delivery.Position {
		s.ledger.dequeue(head)
		n.remove(head)
		s.ledger.startWaiting(head)
	}
}

// dropEarlier releases the Hold with the given position that waits in n, if there is one. Its
// message was delivered again, which makes the earlier delivery void.
func (n *lane) dropEarlier(position string) {
	last := len(n.queue) - 1
	if last < 0 || n.queue[last].Delivery.Position < position { // almost always
		return
	}
	i, held := slices.BinarySearchFunc(n.queue, position, func(q *Hold, p string) int { return strings.Compare(q.Delivery.Position, p) })
	if held {
		l, old := n.source.ledger, n.queue[i]
		l.stopWaiting(old)
		old.state, old.lane = settling, nil
		l.Release(old, LeaseLost(nil))
	}
}

// find returns the index of position in n.stubs, or the index at which to insert it.
func (n *lane) find(position string) (int, bool) {
	return slices.BinarySearchFunc(n.stubs, position, func(st *stub, p string) int { return strings.Compare(st.position, p) })
}

// startWaiting puts h into the queue of its lane. If h has no lane, it waits until Due.
func (l *Ledger) startWaiting(h *Hold) {
	h.state = waiting
	n := h.lane
	if n == nil {
		l.setHoldAlarm(h, h.Due)
	} else {
		i := len(n.queue)
		for i > 0 && n.queue[i-1].Delivery.Position > h.Delivery.Position { // rarely
			i--
		}
		n.queue = slices.Insert(n.queue, i, h)
	}
	if h.parked {
		l.countParked(h, 1)
	} else {
		l.blocked++
		if n != nil {
			n.withSlot++
		}
	}
}

// stopWaiting undoes startWaiting.
func (l *Ledger) stopWaiting(h *Hold) {
	n := h.lane
	if n != nil {
		i := 0
		if n.queue[0] != h {
			i = slices.Index(n.queue, h)
		}
		n.queue = slices.Delete(n.queue, i, i+1)
	}
	if h.parked {
		l.countParked(h, -1)
		l.checkCrowded(h.Source)
	} else {
		l.blocked--
		if n != nil {
			n.withSlot--
		}
	}
}

// advance makes the first Hold of n ready, unless another one is active or an earlier message may
// still be redelivered.
func (l *Ledger) advance(n *lane) {
	if n.head == nil && len(n.queue) > 0 && !l.closed && !n.source.startsNothing() && n.mayRun(n.queue[0]) {
		if h := n.queue[0]; h.Due > l.Now {
			if n.alarm == nil {
				n.alarm = &alarm{ring: func(Instant) { l.advance(n); l.wakeWorker() }}
			}
			l.set(n.alarm, h.Due)
		} else {
			l.stopWaiting(h)
			n.add(h)
			l.admit(h)
		}
	}
	n.source.dropLane(n)
}

// mayRun reports whether no message before h can still be redelivered.
func (n *lane) mayRun(h *Hold) bool {
	p := h.Delivery.Position
	return (len(n.stubs) == 0 || n.stubs[0].position > p) && (n.over == nil || p <= n.over.first)
}

// admit makes h ready.
func (l *Ledger) admit(h *Hold) {
	h.state = ready
	h.class = l.classOf(h)
	l.enqueue(h, false)
}

// leaveLane removes h from its lane, and lets the next message with its key run.
func (s *Source) leaveLane(h *Hold) {
	n := h.lane
	if n == nil {
		return
	}
	h.lane = nil
	n.remove(h) // does nothing unless h is active
	s.ledger.advance(n)
}

// retry returns when the first message of n is due, or zero if that is now.
func (n *lane) retry() Instant {
	if n == nil {
		return 0
	}
	due := Instant(0)
	for _, st := range n.stubs {
		due = max(due, st.until)
	}
	if len(n.queue) > 0 {
		due = max(due, n.queue[0].Due)
	}
	return due
}

// cloneKey copies the key of n, because n stays without any Holds. The original string could keep
// all strings of its Receive in memory.
func (s *Source) cloneKey(n *lane) {
	delete(s.lanes, n.key)
	n.key = strings.Clone(n.key)
	s.lanes[n.key] = n
}

const freeLanes = 1024

// dropLane deletes n if there is nothing left to remember about it.
func (s *Source) dropLane(n *lane) {
	if n.touched || n.head != nil || len(n.queue) > 0 || len(n.stubs) > 0 || n.failed || n.over != nil && n.over.ahead(s.ledger.Now) || s.lanes[n.key] != n {
		return
	}
	delete(s.lanes, n.key)
	if n.alarm != nil {
		s.ledger.set(n.alarm, 0)
		return // the alarm refers to n
	}
	if len(s.free) < freeLanes {
		*n = lane{queue: n.queue[:0], active: active{next: n.next[:0]}}
		s.free = append(s.free, n)
	}
}

// Remembers reports whether s has a lane for key.
func (s *Source) Remembers(key string) bool { return s.lanes[key] != nil }
