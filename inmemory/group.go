package inmemory

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A group is what its members have to settle: what was never handed out, from the
// cursor on, and what was handed out and is not settled, which is in the queue.
// All of it is guarded by the topic's mutex; of what is published meanwhile it sees
// more, from one look at the log to the next.
type group struct {
	topic   *topic
	name    string
	members map[*source]struct{}

	entries  row // from the oldest that is not settled to the cursor
	queue    queue
	inFlight int    // those in the queue that a member holds
	handouts uint64 // so far
	void     uint64 // those up to this one are of before a reset, and hold nothing

	waiting int           // members that wait in Receive
	wake    chan struct{} // wakes one of them
	timer   *time.Timer   // wakes one of them
	alarm   moment        // when timer fires; never, if it was not set
}

func newGroup(t *topic, name string, cursor uint64) *group {
	g := &group{
		topic: t, name: name, members: map[*source]struct{}{}, entries: newRow(cursor, t.entries),
		wake: make(chan struct{}, 1), timer: time.NewTimer(never), alarm: never,
	}
	g.timer.Stop()
	return g
}

// floor is the lowest offset that is not settled.
func (g *group) floor() uint64 { return g.entries.first }

// cursor is the lowest offset that was never handed out.
func (g *group) cursor() uint64 { return g.entries.next }

func (g *group) lag() int64       { return int64(g.topic.log.next.Load() - g.cursor()) }
func (g *group) unsettled() int64 { return g.lag() + int64(g.queue.len()) }

// take hands out up to limit messages for one lease: the lowest offsets of all that
// is due. What came back has a lower offset than anything new. Large payloads are
// still the log's.
func (g *group) take(loan *slab.Loan, limit int, lease time.Duration) []backend.Delivery {
	now := g.topic.clock.now()
	back := g.queue.take(limit, now)
	n := len(back) + int(min(int64(limit-len(back)), g.lag()))
	if n == 0 {
		return nil
	}
	ds, receipts := loan.Lend(loan.Room(nil, n)[:n]), make([]receipt, n)
	until := after(now, lease)
	for i := range ds {
		var e *entry
		if i < len(back) {
			e = back[i]
		} else {
			e = g.takeNew()
		}
		g.lease(e, until)
		receipts[i] = receipt{g, e.offset, e.handout}
		ds[i] = backend.Delivery{Attempt: e.attempt, Token: &receipts[i]}
		ds[i].Topic = g.topic.name
	}
	for i := 0; i < n; {
		i += g.topic.log.read(receipts[i].offset, neighbours(receipts[i:]), func(j int) *backend.Message { return &ds[i+j].Message })
	}
	g.alert(now)
	return ds
}

// neighbours is how many of the first of rs have offsets one after another.
func neighbours(rs []receipt) int {
	n := 1
	for n < min(len(rs), pageSize) && rs[n].offset == rs[0].offset+uint64(n) {
		n++
	}
	return n
}

// takeNew makes an entry of what is at the cursor.
func (g *group) takeNew() *entry {
	offset, e := g.entries.append()
	e.offset = offset
	return e
}

// lease hands e out until the moment given.
func (g *group) lease(e *entry, until moment) {
	g.handouts++
	e.handout = g.handouts
	e.attempt++
	g.hold(e, true)
	g.queue.lease(e, until)
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

// entry returns what a receipt is of, or nil if that is settled.
func (g *group) entry(r *receipt) *entry {
	if r.handout <= g.void || r.offset < g.floor() {
		return nil
	}
	if e := g.entries.at(r.offset); !e.settled {
		return e
	}
	return nil
}

// settle removes e for good.
func (g *group) settle(e *entry) {
	g.hold(e, false)
	g.queue.remove(e)
	e.settled = true
	for g.entries.len() > 0 && g.entries.at(g.floor()).settled {
		g.entries.forget()
	}
}

// reset lets the group begin anew at start.
func (g *group) reset(start backend.Start) error {
	if err := g.restart(start); err != nil {
		return err
	}
	g.topic.trim()
	g.alert(g.topic.clock.now())
	return nil
}

func (g *group) restart(start backend.Start) error {
	log := &g.topic.log
	log.mu.Lock()
	defer log.mu.Unlock()
	cursor, err := log.resolve(start)
	if err != nil {
		return err
	}
	before := g.unsettled()
	g.entries, g.queue, g.inFlight, g.void = newRow(cursor, g.topic.entries), queue{}, 0, g.handouts
	g.topic.ledger.owe(g.unsettled() - before)
	return nil
}

// alert wakes one waiting member if something is due, and otherwise sees to it
// that one wakes when something will be. Every change that may make something
// due earlier ends with it, and so does whoever was woken: what it leaves, it
// passes on.
func (g *group) alert(now moment) {
	if g.waiting == 0 {
		return
	}
	due := g.queue.next()
	switch {
	case due <= now || g.fresh():
		select {
		case g.wake <- struct{}{}:
		default: // somebody will wake already, and pass it on
		}
	case due < g.alarm:
		g.alarm = due
		g.timer.Reset(due - now)
	}
}

// fresh reports whether there is something that was never handed out. If not,
// whoever stores the next alerts the group.
func (g *group) fresh() bool {
	if g.lag() > 0 {
		return true
	}
	g.topic.awaited.Store(true)
	return g.lag() > 0 // stored meanwhile, by somebody who may have found nobody to alert
}

// end makes every member fail with err from now on, and owes nothing any more. The
// caller has the log's lock too.
func (g *group) end(err error) {
	for s := range g.members {
		s.end(err)
	}
	g.topic.log.readers--
	g.topic.ledger.owe(-g.unsettled())
}
