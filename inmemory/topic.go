package inmemory

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A topic is a log and the groups that read it.
type topic struct {
	name    string
	clock   clock
	ledger  *ledger       // of the backend
	entries *spare[chunk] // of the backend

	mu     sync.Mutex // guards all that follows, groups and members included
	log    log
	marks  marks
	groups []*group // sorted by name
	err    error    // why it ended
}

func (b *Backend) newTopic(name string) *topic {
	return &topic{
		name: name, clock: b.clock, ledger: &b.ledger, entries: &b.entries,
		log: newLog(&b.pages), marks: newMarks(b.options.OnceWindow),
	}
}

func (t *topic) publish(msgs []*backend.Message, now moment, fail func(i int, err error)) {
	for i, m := range msgs {
		if err := t.store(m, now); err != nil {
			fail(i, err)
		}
	}
	for _, g := range t.groups {
		g.alert(now)
	}
}

func (t *topic) store(m *backend.Message, now moment) error {
	m.Position, m.Duplicate = "", false
	if m.Once {
		if position, ok := t.marks.find(m.ID, now); ok {
			m.Position, m.Duplicate = position, true
			return nil
		}
	}
	if err := t.ledger.enter(m.Size(), len(t.groups)); err != nil {
		return err
	}
	m.Position = t.log.store(m, now)
	if m.Once {
		t.marks.add(m.ID, m.Position, now)
	}
	return nil
}

// resolve returns the offset at which start begins.
func (t *topic) resolve(start backend.Start) (uint64, error) {
	if after, ok := start.After(); ok {
		offset, err := parsePosition(after)
		return max(min(offset, t.log.next-1)+1, t.log.first), err
	}
	switch start {
	case backend.StartEarliest:
		return t.log.first, nil
	case backend.StartLatest:
		return t.log.next, nil
	}
	return 0, fmt.Errorf("unknown start %q", start)
}

// group returns the group of that name, or nil.
func (t *topic) group(name string) *group {
	i, found := t.search(name)
	if !found {
		return nil
	}
	return t.groups[i]
}

func (t *topic) search(name string) (i int, found bool) {
	return slices.BinarySearchFunc(t.groups, name, func(g *group, name string) int {
		return strings.Compare(g.name, name)
	})
}

func (t *topic) addGroup(name string, cursor uint64) *group {
	g := newGroup(t, name, cursor)
	i, _ := t.search(name)
	t.groups = slices.Insert(t.groups, i, g)
	t.ledger.owe(g.unsettled())
	return g
}

func (t *topic) removeGroup(g *group) {
	i, _ := t.search(g.name)
	t.groups = slices.Delete(t.groups, i, i+1)
	g.end(backend.ErrGone)
	t.ledger.owe(-g.unsettled())
	t.trim()
}

// trim forgets what every group has settled. Without a group nothing is.
func (t *topic) trim() {
	if len(t.groups) == 0 {
		return
	}
	floor := t.log.next
	for _, g := range t.groups {
		floor = min(floor, g.floor())
	}
	if floor > t.log.first {
		t.ledger.leave(t.log.trim(floor))
	}
}

// end forgets the topic; members that are attached get err from now on.
func (t *topic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	for _, g := range t.groups {
		g.end(err)
		t.ledger.owe(-g.unsettled())
	}
	t.groups = nil
	t.ledger.leave(t.log.trim(t.log.next))
}
