package inmemory

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A group is what its members have to settle: everything from the cursor on,
// and every entry. All of it is guarded by the topic's mutex.
type group struct {
	topic   *topic
	name    string
	members map[*source]struct{}

	cursor      uint64 // the lowest offset that was never handed out
	queue       queue  // what was, in the order it is due
	first, last *entry // the same entries, in log order
	inFlight    int    // those of them that a member holds

	waiting int           // members that wait in Receive
	wake    chan struct{} // wakes one of them
	timer   *time.Timer   // wakes one of them
	alarm   moment        // when timer fires; never, if it was not set
}

// An entry is a message that was handed out and is not settled.
type entry struct {
	offset   uint64
	due      moment
	attempt  int // hand-outs that count
	handouts int // all hand-outs: tells one receipt from the next
	held     bool
	index    int // in the queue; -1: settled

	prev, next *entry // in log order
}

// A receipt is the Token of a delivery: which entry, and which hand-out of it.
type receipt struct {
	group   *group
	entry   *entry
	handout int
}

func newGroup(t *topic, name string, cursor uint64) *group {
	g := &group{
		topic: t, name: name, members: map[*source]struct{}{}, cursor: cursor,
		wake: make(chan struct{}, 1), timer: time.NewTimer(never), alarm: never,
	}
	g.timer.Stop()
	return g
}

// floor is the lowest offset that is not settled.
func (g *group) floor() uint64 {
	if g.first != nil {
		return g.first.offset
	}
	return g.cursor
}

func (g *group) lag() int64       { return int64(g.topic.log.next - g.cursor) }
func (g *group) unsettled() int64 { return g.lag() + int64(len(g.queue)) }

// take hands out up to limit messages for one lease: first what came back and is
// due, then what is new. The messages still share the log's memory.
func (g *group) take(limit int, lease time.Duration) []backend.Delivery {
	now := g.topic.clock.now()
	back := g.takeBack(limit, now, after(now, lease))
	fresh := g.takeNew(limit-len(back), after(now, lease))
	n := len(back) + len(fresh)
	if n == 0 {
		return nil
	}
	ds, receipts := make([]backend.Delivery, n), make([]receipt, n)
	for i := range ds {
		var e *entry
		if i < len(back) {
			e = back[i]
		} else {
			e = &fresh[i-len(back)]
		}
		e.attempt++
		e.handouts++
		receipts[i] = receipt{g, e, e.handouts}
		d := &ds[i]
		g.topic.log.at(e.offset).read(&d.Message, g.topic.name)
		d.Attempt, d.Token = e.attempt, &receipts[i]
	}
	g.alert(now)
	return ds
}

// takeBack leases entries that are due until the moment given.
func (g *group) takeBack(limit int, now, until moment) (back []*entry) {
	for len(back) < limit && len(g.queue) > 0 && g.queue[0].due <= now {
		e := g.queue[0]
		g.hold(e, true)
		g.queue.move(e, until)
		back = append(back, e)
	}
	return back
}

// takeNew makes entries of what follows the cursor, leased until the moment
// given.
func (g *group) takeNew(limit int, until moment) []entry {
	fresh := make([]entry, min(int64(limit), g.lag()))
	for i := range fresh {
		e := &fresh[i]
		e.offset, e.due, e.held = g.cursor, until, true
		g.cursor++
		g.inFlight++
		g.queue.push(e)
		if e.prev = g.last; e.prev != nil {
			e.prev.next = e
		} else {
			g.first = e
		}
		g.last = e
	}
	return fresh
}

// hold says whether a member holds e from now on.
func (g *group) hold(e *entry, held bool) {
	if e.held != held {
		e.held = held
		if held {
			g.inFlight++
		} else {
			g.inFlight--
		}
	}
}

// settle removes e for good.
func (g *group) settle(e *entry) {
	g.hold(e, false)
	g.queue.remove(e)
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		g.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		g.last = e.prev
	}
	e.prev, e.next = nil, nil
}

// reset lets the group begin anew at cursor.
func (g *group) reset(cursor uint64) {
	before := g.unsettled()
	for _, e := range g.queue {
		e.index, e.held, e.prev, e.next = -1, false, nil, nil
	}
	g.queue, g.first, g.last, g.inFlight = nil, nil, nil, 0
	g.cursor = cursor
	g.topic.ledger.owe(g.unsettled() - before)
	g.topic.trim()
	g.alert(g.topic.clock.now())
}

// alert wakes one waiting member if something is due, and otherwise sees to it
// that one wakes when something will be. Every change that may make something
// due earlier ends with it, and so does whoever was woken: what it leaves, it
// passes on.
func (g *group) alert(now moment) {
	if g.waiting == 0 {
		return
	}
	due := never
	if len(g.queue) > 0 {
		due = g.queue[0].due
	}
	switch {
	case g.lag() > 0 || due <= now:
		select {
		case g.wake <- struct{}{}:
		default: // somebody will wake already, and pass it on
		}
	case due < g.alarm:
		g.alarm = due
		g.timer.Reset(due - now)
	}
}

// end makes every member fail with err from now on.
func (g *group) end(err error) {
	for s := range g.members {
		s.end(err)
	}
}
