package inmemory

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// A topic is a log and the groups that read it.
type topic struct {
	name    string
	clock   clock
	ledger  *ledger       // of the backend
	entries *spare[chunk] // of the backend
	log     log

	awaited atomic.Bool // a group waits for the next message

	mu     sync.Mutex // guards all that follows, groups and members included
	groups []*group   // sorted by name
	err    error      // why it ended; changes with the log's lock held too
}

func (b *Backend) newTopic(name string) *topic {
	t := &topic{name: name, clock: b.clock, ledger: &b.ledger, entries: &b.entries}
	t.log.init(b)
	return t
}

// lock takes the topic's lock, unless the topic has ended.
func (t *topic) lock() error {
	t.mu.Lock()
	err := t.err
	if err != nil {
		t.mu.Unlock()
	}
	return err
}

// lockLog takes the log's lock, unless the topic has ended.
func (t *topic) lockLog() error {
	t.log.mu.Lock()
	err := t.err
	if err != nil {
		t.log.mu.Unlock()
	}
	return err
}

// publish stores msgs and gives up the log's lock.
func (t *topic) publish(msgs []*backend.Message, now moment, fail func(i int, err error)) {
	t.log.publish(msgs, now, fail)
	t.log.mu.Unlock()
	if t.awaited.Load() && t.awaited.CompareAndSwap(true, false) {
		t.alert(now)
	}
}

// alert tells the groups that something was stored.
func (t *topic) alert(now moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		g.alert(now)
	}
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

func (t *topic) addGroup(name string, start backend.Start) (*group, error) {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	cursor, err := t.log.resolve(start)
	if err != nil {
		return nil, err
	}
	g := newGroup(t, name, cursor)
	i, _ := t.search(name)
	t.groups = slices.Insert(t.groups, i, g)
	t.log.readers++
	t.ledger.owe(g.unsettled())
	return g, nil
}

func (t *topic) removeGroup(g *group) {
	i, _ := t.search(g.name)
	t.groups = slices.Delete(t.groups, i, i+1)
	t.log.mu.Lock()
	g.end(backend.ErrGone)
	t.log.mu.Unlock()
	t.trim()
}

// trim forgets what every group has settled. Without a group nothing is.
func (t *topic) trim() {
	if len(t.groups) == 0 {
		return
	}
	floor := t.groups[0].floor()
	for _, g := range t.groups[1:] {
		floor = min(floor, g.floor())
	}
	if floor > t.log.first {
		t.log.mu.Lock()
		defer t.log.mu.Unlock()
		t.log.trim(floor)
	}
}

// end forgets the topic; members that are attached get err from now on.
func (t *topic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	t.err = err
	for _, g := range t.groups {
		g.end(err)
	}
	t.groups = nil
	t.log.trim(t.log.next.Load())
}
