package inmemory

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A group holds the unsettled messages of a topic, for its members. A message with an offset
// below the cursor was delivered, and has an entry until the group settles it. A message
// from the cursor on was never delivered. The lock of the topic guards the group.
type group struct {
	topic   *topic
	name    string
	path    string // topic/name, for errors
	members map[*source]struct{}
	notify  func(backend.Notice) // of the latest member; nil: none

	ephemeral bool
	pause     backend.Pause
	changed   chan struct{} // closed and replaced when pause changes

	floor     uint64   // the lowest offset of an unsettled message
	entries   []*entry // by offset, from floor to cursor-1; nil for a settled message
	open      int      // number of unsettled entries
	due       []*entry // entries that are due, sorted by offset
	scheduled dueHeap  // the batches of all entries that are not in due

	waiting int           // members waiting in Receive
	wake    chan struct{} // wakes one waiting member
	timer   *time.Timer   // wakes one waiting member when an entry is due
}

// newGroup makes a group that begins at start.
func (t *topic) newGroup(name string, start backend.Start) (*group, error) {
	g := &group{
		topic: t, name: name, path: t.name + "/" + name, members: map[*source]struct{}{},
		changed: make(chan struct{}), wake: make(chan struct{}, 1), timer: time.NewTimer(math.MaxInt64),
	}
	g.timer.Stop()
	if err := g.reset(start); err != nil {
		return nil, err
	}
	t.groups[name] = g
	return g, nil
}

// reset makes the group begin at start. It forgets the unsettled messages of the group, and
// earlier receipts become invalid.
func (g *group) reset(start backend.Start) error {
	cursor, err := g.topic.log.resolveStart(start)
	if err != nil {
		return err
	}
	for _, e := range g.entries {
		if e != nil {
			e.settled, e.receipt = true, nil
		}
	}
	g.floor, g.entries, g.open, g.due, g.scheduled = cursor, nil, 0, nil, nil
	return nil
}

// deleteIfEmpty deletes an ephemeral group without members.
func (g *group) deleteIfEmpty() {
	if !g.ephemeral || len(g.members) > 0 {
		return
	}
	g.topic.totals.removeEphemeral(g)
	if g.topic.groups[g.name] == g {
		delete(g.topic.groups, g.name)
	}
}

// touch records that the members of the group are alive, and returns when it has to be called again.
func (g *group) touch(now time.Time) (next time.Duration) {
	next = maintainInterval
	for s := range g.members {
		s.lastSeen, next = now, min(next, 3*s.lease)
	}
	return next
}

// expireEphemeral deletes an ephemeral group if no member was heard of for ten leases.
func (g *group) expireEphemeral(now time.Time) {
	for s := range g.members {
		if s.receiving || now.Sub(s.lastSeen) <= ephemeralLeases*s.lease {
			return
		}
	}
	g.end(backend.ErrGone)
	g.deleteIfEmpty()
}

const ephemeralLeases = 10 // see backend.Config.Ephemeral

// setPause changes the pause, and wakes waiting members so that they see it.
func (g *group) setPause(p backend.Pause) {
	g.pause = p
	close(g.changed)
	g.changed = make(chan struct{})
}

// paused returns the current pause, or the zero Pause.
func (g *group) paused() backend.Pause {
	if !g.pause.Until.IsZero() && !time.Now().Before(g.pause.Until) {
		g.pause = backend.Pause{}
	}
	return g.pause
}

// cursor is the lowest offset that was never delivered.
func (g *group) cursor() uint64 { return g.floor + uint64(len(g.entries)) }

func (g *group) lag() int { return int(g.topic.log.next() - g.cursor()) }

// take delivers at most limit due messages to s, of at most maxBytes together, in the order
// of their offsets. Redelivered messages are first, because their offsets are below the cursor. The deliveries share
// memory with the log.
func (g *group) take(limit int, maxBytes int64, s *source) []backend.Delivery {
	now := time.Now()
	g.collectDue(now)
	taken := make([]*entry, g.fitBytes(min(limit, len(g.due)+g.lag()), maxBytes))
	if len(taken) == 0 {
		return nil
	}
	back := copy(taken, g.due)
	g.due = slices.Delete(g.due, 0, back)
	fresh := make([]entry, len(taken)-back)
	for i := range fresh {
		fresh[i].group, fresh[i].offset = g, g.cursor()
		taken[back+i] = &fresh[i]
		g.entries = append(g.entries, &fresh[i])
	}
	g.open += len(fresh)
	ds := s.loan.Lend(s.loan.Room(nil, len(taken))[:len(taken)])
	receipts := make([]receipt, len(taken))
	for i, e := range taken {
		r := g.topic.log.at(e.offset)
		e.attempt++
		e.receipt, receipts[i].entry = &receipts[i], e
		ds[i] = backend.Delivery{Message: r.message, Attempt: e.attempt, Redelivered: i < back, Token: e.receipt, Err: r.err}
	}
	g.reschedule(s, now.Add(s.lease), taken...)
	return ds
}

// fitBytes returns how many of the first n due messages have at most maxBytes together, or n
// if maxBytes is zero or less. It counts the first message even if it is larger.
func (g *group) fitBytes(n int, maxBytes int64) int {
	if maxBytes <= 0 || int64(n)*int64(g.topic.log.largest) <= maxBytes {
		return n
	}
	for i := range n {
		offset := g.cursor() + uint64(i-len(g.due))
		if i < len(g.due) {
			offset = g.due[i].offset
		}
		if maxBytes -= int64(g.topic.log.at(offset).message.Size()); maxBytes < 0 {
			return max(i, 1)
		}
	}
	return n
}

// collectDue moves the entries of all batches that are due by now from scheduled to due.
func (g *group) collectDue(now time.Time) {
	before := len(g.due)
	for len(g.scheduled) > 0 && !g.scheduled[0].due.After(now) {
		t := heap.Pop(&g.scheduled).(*dueBatch)
		for _, e := range t.entries {
			if e.batch == t {
				e.batch = nil
				g.due = append(g.due, e)
			}
		}
	}
	if len(g.due) > before {
		slices.SortFunc(g.due, byOffset)
	}
}

func byOffset(e, f *entry) int { return cmp.Compare(e.offset, f.offset) }

// reschedule makes entries due at the given time. Until then holder has them; it is nil after a
// Delay. reschedule moves them from their batches, or from g.due, to a new batch.
func (g *group) reschedule(holder *source, at time.Time, entries ...*entry) {
	t := &dueBatch{holder: holder, due: at, entries: entries, left: len(entries)}
	for _, e := range entries {
		g.unschedule(e)
		e.batch = t
	}
	heap.Push(&g.scheduled, t)
}

// unschedule removes e from its batch, or from due.
func (g *group) unschedule(e *entry) {
	if t := e.batch; t != nil {
		e.batch = nil
		if t.left--; t.left == 0 {
			heap.Remove(&g.scheduled, t.index)
		}
	} else if i, found := slices.BinarySearchFunc(g.due, e, byOffset); found {
		g.due = slices.Delete(g.due, i, i+1)
	}
}

// settle permanently removes e from the group.
func (g *group) settle(e *entry) {
	g.unschedule(e)
	e.settled, e.receipt = true, nil
	g.open--
	g.entries[e.offset-g.floor] = nil
	for ; len(g.entries) > 0 && g.entries[0] == nil; g.floor++ {
		g.entries = g.entries[1:]
	}
}

// release makes all messages that s holds due.
func (g *group) release(s *source) {
	var held []*entry
	for _, t := range g.scheduled {
		if t.holder == s {
			held = append(held, t.entries...)
		}
	}
	slices.SortFunc(held, byOffset)
	for _, e := range held {
		if t := e.batch; t != nil && t.holder == s {
			g.unschedule(e)
			g.due = append(g.due, e)
		}
	}
	slices.SortFunc(g.due, byOffset)
}

// wakeNext wakes one waiting member if a message is due. Otherwise it sets the timer to the
// next due time. Every access to the topic ends with wakeNext, and so does Receive, because
// more messages may be due than it took.
func (g *group) wakeNext() {
	if g.waiting == 0 {
		return
	}
	now := time.Now()
	g.collectDue(now)
	switch {
	case g.lag() > 0, len(g.due) > 0:
		select {
		case g.wake <- struct{}{}:
		default: // one member has a wake-up already; its Receive ends with wakeNext for the next
		}
	case len(g.scheduled) > 0:
		g.timer.Reset(g.scheduled[0].due.Sub(now))
	}
}

// end makes all later calls of the members fail with err.
func (g *group) end(err error) {
	for s := range g.members {
		s.end(err)
	}
}

// An entry is a delivered, unsettled message of a group.
type entry struct {
	group   *group
	offset  uint64
	attempt int      // counted deliveries
	receipt *receipt // of its last delivery; nil if no member holds the message
	settled bool
	batch   *dueBatch // nil: the entry is due, or settled
}

// A receipt is the Token of a delivery.
type receipt struct{ entry *entry }

// A dueBatch is a set of entries that become due at the same time. A Receive makes one batch of all its
// deliveries, Delay and Extend make one for each delivery. An Ack changes the heap only if it removes
// the last entry of a batch.
type dueBatch struct {
	holder  *source // the member whose lease ends then; nil for a delay
	due     time.Time
	entries []*entry
	left    int // number of entries still in the batch
	index   int // position in the heap
}

// A dueHeap is a heap of batches, for package container/heap. The earliest is at index 0.
type dueHeap []*dueBatch

func (s dueHeap) Len() int           { return len(s) }
func (s dueHeap) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s dueHeap) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *dueHeap) Push(t any) {
	t.(*dueBatch).index = len(*s)
	*s = append(*s, t.(*dueBatch))
}

func (s *dueHeap) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	*s = slices.Delete(*s, last, last+1) // also forgets t
	return t
}
