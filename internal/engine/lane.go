package engine

import (
	"slices"
	"time"
)

// A lane has the Holds of one key, in order. One of them runs at a time: the head. The
// other Holds queue behind it by position.
//
// To retry its head, a lane steps back. The head and all Holds behind it are given back to
// the backend, due at the same moment. The field until keeps that moment. A Receive called
// before until may bring a later event of the key without the earlier ones. Such an event
// arrives early and steps back too. A Receive called after until brings the earlier events
// first, as [backend.Source] promises, unless another member has them.
type lane struct {
	key   string
	head  *Hold   // ready, running, resting or being settled; nil: none
	queue []*Hold // by position: queued, or resting

	steps   int    // giveBacks of this lane that have not ended
	until   moment // when all events that stepped back are surely due; zero: none stepped back
	turn    int64  // the number of the last answer to a Delay, see read.turn
	first   string // the lowest position that stepped back; its event is never early
	forgets int    // how often the lane was told to forget

	retry   moment // when the last head that stepped back is due; zero: none, or settled
	failed  bool   // an event of the key failed for good (FailAll)
	touched bool   // during put: the Receive has brought an event of this lane
}

// mayLead reports whether h may be the head: no earlier event of its key was given back
// that may still arrive.
func (l *lane) mayLead(h *Hold) bool {
	if l.steps > 0 {
		return h.delivery.Position <= l.first
	}
	return !l.early(h)
}

// insert puts h into the queue, in the order of positions.
func (l *lane) insert(h *Hold) {
	i := len(l.queue)
	for i > 0 && l.queue[i-1].delivery.Position > h.delivery.Position { // rarely true
		i--
	}
	l.queue = slices.Insert(l.queue, i, h)
}

func (l *lane) remove(h *Hold) {
	l.queue = slices.DeleteFunc(l.queue, func(q *Hold) bool { return q == h })
}

// early reports whether h must step back, because an earlier event of its key may arrive
// after it.
func (l *lane) early(h *Hold) bool {
	r := h.read
	return l.until != 0 && (r.asked < l.until || r.turn < l.turn) && h.delivery.Position > l.first
}

// stepping notes that Holds step back. The parameter position is the lowest of their
// positions.
func (l *lane) stepping(position string) {
	if l.first == "" || position < l.first {
		l.first = position
	}
	l.steps++
}

// stepped notes that the Holds of one giveBack were given back. All of them are due by
// until. The last call of Delay for them was answered. The parameter turn is the number of
// this answer, see read.turn.
func (l *lane) stepped(until moment, turn int64) {
	l.steps--
	l.until, l.turn = max(l.until, until), turn
}

// settle forgets the events that stepped back if they were all due when a Receive was
// called. asked and turn are the moment and the number of this Receive, see read.
func (l *lane) settle(asked moment, turn int64) {
	if l.steps == 0 && l.until <= asked && l.turn <= turn {
		l.until, l.first = 0, ""
	}
}

// forget forgets the events that stepped back, because the group was lost or reset. That
// includes events whose Delay is under way, see ledger.gaveBack.
func (l *lane) forget() {
	l.until, l.first = 0, ""
	l.forgets++
}

// settleQueue calls settle for the earliest Receive that brought an event of the queue. If
// all events that stepped back were due at this Receive, settle forgets them.
func (l *lane) settleQueue() {
	if l.until == 0 || len(l.queue) == 0 {
		return
	}
	asked, turn := l.queue[0].read.asked, l.queue[0].read.turn
	for _, h := range l.queue {
		asked, turn = min(asked, h.read.asked), min(turn, h.read.turn)
	}
	l.settle(asked, turn)
}

// idle reports whether nothing of the lane is left to remember, so that drop may forget it.
func (l *lane) idle() bool {
	return l.head == nil && len(l.queue) == 0 && l.steps == 0 && l.until == 0 && !l.failed
}

// advance makes the first Hold of l's queue the head, if mayLead allows it. Holds that
// arrived early step back. While the head rests, Holds behind it that exceed keyShare step
// back too.
func (d *ledger) advance(l *lane) {
	if d.closed {
		return
	}
	l.settleQueue()
	d.yield(l)
	if l.head == nil && len(l.queue) > 0 && l.mayLead(l.queue[0]) {
		l.head = l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		if l.head.state != resting {
			d.admit(l.head)
			d.rouse()
		}
	}
	if l.steps == 0 {
		d.stepBackEarly(l)
	}
	d.lanes.drop(l)
}

// While the first event of a lane fails again and again, the events behind it that are given
// back are due later: by perEvent for each of them, but at most maxSpread from now.
// Otherwise reading them again would delay events of other keys.
const (
	perEvent  = moment(200 * time.Microsecond)
	maxSpread = moment(10 * time.Second)
)

// stepBackEarly gives back the first Hold of l's queue that is early, see lane.early, and
// all Holds behind it. If the head rests, only keyShare Holds may queue behind it. Then
// stepBackEarly also gives back the Holds beyond them.
func (d *ledger) stepBackEarly(l *lane) {
	due, room := l.until, len(l.queue)
	if l.head != nil && l.head.state == resting {
		due, room = max(due, l.head.due), d.keyShare()
	}
	if l.until == 0 && len(l.queue) <= room {
		return
	}
	n := slices.IndexFunc(l.queue, func(h *Hold) bool {
		room--
		return room < 0 && h.state == queued || l.early(h)
	})
	if n < 0 || l.queue[n].read.attachment.delayer == nil {
		return
	}
	early := slices.Clone(l.queue[n:]) // a Hold behind one that steps back would be early too
	clear(l.queue[n:])
	l.queue = l.queue[:n]
	if now := d.sub.moment(time.Now()); now < l.retry {
		spread := due + moment(len(early))*perEvent
		due = max(due, min(spread, now+maxSpread))
	}
	for _, h := range early {
		due = max(due, h.due) // a retry that rested; the events before it then wait as long
	}
	l.stepping(early[0].delivery.Position)
	d.chasing++
	d.giveBack(&giveBack{lane: l, holds: early, due: due, early: true, chases: true})
}

// lanes are the lanes of a subscription, by key. The zero value is ready to use.
type lanes struct {
	byKey map[string]*lane
	free  []*lane // idle lanes, whose memory is used again
	sweep moment  // when to look for lanes that are idle
}

const (
	freeLanes  = 1024
	sweepEvery = moment(1e9) // a second
)

// of returns the lane of key, which it makes if there is none.
func (ls *lanes) of(key string) *lane {
	if l := ls.byKey[key]; l != nil {
		return l
	}
	l := &lane{}
	if last := len(ls.free) - 1; last >= 0 {
		l, ls.free = ls.free[last], ls.free[:last]
	}
	l.key = key
	if ls.byKey == nil {
		ls.byKey = map[string]*lane{}
	}
	ls.byKey[key] = l
	return l
}

// drop forgets l if it is idle.
func (ls *lanes) drop(l *lane) {
	if !l.idle() || ls.byKey[l.key] != l {
		return
	}
	delete(ls.byKey, l.key)
	if len(ls.free) < freeLanes {
		*l = lane{queue: l.queue[:0]}
		ls.free = append(ls.free, l)
	}
}

// settle calls lane.settle for each lane and drops idle lanes, at most once a second.
func (ls *lanes) settle(asked moment, turn int64) {
	if asked < ls.sweep {
		return
	}
	ls.sweep = asked + sweepEvery
	for _, l := range ls.byKey {
		l.settle(asked, turn)
		ls.drop(l)
	}
}
