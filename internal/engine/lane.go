package engine

import (
	"slices"
	"strings"
	"time"
)

// A lane has the Holds of one key, in order. One of them runs at a time: the head. The
// other Holds queue behind it by position.
//
// To retry its head, a lane steps back. The head and all Holds behind it are given back to
// the backend, due at the same moment; the field away remembers them. A Receive called before
// that moment may bring a later event of the key without the earlier ones. Such an event
// arrives early and steps back too. A Receive called after it brings the earlier events
// first, as [backend.Source] promises, unless another member has them.
type lane struct {
	key   string
	head  *Hold   // ready, running, resting or being settled; nil: none
	queue []*Hold // by position: queued, or resting
	away  *away   // nil: none

	retry   moment // when the last head that stepped back is due; zero: none, or settled
	failed  bool   // an event of the key failed for good (FailAll)
	touched bool   // during put: the Receive has brought an event of this lane
}

// An away has the events of a lane that stepped back and may still arrive.
type away struct {
	first string // the lowest of their positions; its event is never early
	calls int    // giveBacks that have not ended
	until moment // when all of them are surely due, and the Delays were answered; zero: none was delayed
}

// returned notes that the last call of Delay for g has ended, now, see Subscription.tick.
func (a *away) returned(g *giveBack, now moment) {
	a.calls--
	if until := max(a.until, g.until); until != 0 {
		a.until = max(until, now)
	}
}

// mayLead reports whether h may be the head: no earlier event of its key may still arrive.
func (l *lane) mayLead(h *Hold) bool {
	return l.away == nil || h.delivery.Position <= l.away.first || l.away.calls == 0 && !l.early(h)
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
	return l.away != nil && h.read.asked < l.away.until && h.delivery.Position > l.away.first
}

// settle forgets the events that stepped back if they were all due when the Receive was
// called that came at the given moment, see read.asked.
func (l *lane) settle(asked moment) {
	if l.away != nil && l.away.calls == 0 && l.away.until <= asked {
		l.away = nil
	}
}

// settleQueue calls settle for the earliest Receive that brought an event of the queue. If
// all events that stepped back were due at this Receive, settle forgets them.
func (l *lane) settleQueue() {
	if l.away == nil || len(l.queue) == 0 {
		return
	}
	asked := l.queue[0].read.asked
	for _, h := range l.queue {
		asked = min(asked, h.read.asked)
	}
	l.settle(asked)
}

// idle reports whether nothing of the lane is left to remember, so that drop may forget it.
func (l *lane) idle() bool {
	return l.head == nil && len(l.queue) == 0 && l.away == nil && !l.failed
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
	if l.away == nil || l.away.calls == 0 {
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
	due, room := moment(0), len(l.queue)
	if l.away != nil {
		due = l.away.until
	}
	if l.head != nil && l.head.state == resting {
		due, room = max(due, l.head.due), d.keyShare()
	}
	if l.away == nil && len(l.queue) <= room {
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
	d.chasing++
	d.giveBack(&giveBack{lane: l, away: d.lanes.stepping(l, early[0].delivery.Position), holds: early, due: due, early: true, chases: true})
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

// stepping notes that Holds of l step back. The parameter position is the lowest of their
// positions.
func (ls *lanes) stepping(l *lane, position string) *away {
	if l.away == nil {
		ls.outlive(l)
		l.away = &away{first: strings.Clone(position)}
	}
	if position < l.away.first {
		l.away.first = strings.Clone(position)
	}
	l.away.calls++
	return l.away
}

// outlive copies the key of l, because l will be kept without Holds. The key may share its
// memory with all texts of its Receive.
func (ls *lanes) outlive(l *lane) {
	delete(ls.byKey, l.key)
	l.key = strings.Clone(l.key)
	ls.byKey[l.key] = l
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
func (ls *lanes) settle(asked moment) {
	if asked < ls.sweep {
		return
	}
	ls.sweep = asked + sweepEvery
	for _, l := range ls.byKey {
		l.settle(asked)
		ls.drop(l)
	}
}
