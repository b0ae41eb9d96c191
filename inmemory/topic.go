package inmemory

import (
	"fmt"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A topic is a log and the groups that read it.
type topic struct {
	ledger *ledger
	name   string

	mu        sync.Mutex // guards the fields below, and the groups with their members
	log       log
	once      once
	groups    map[string]*group // nil after the topic was deleted, or the backend closed
	unsettled int               // number of unsettled messages of all groups, as the ledger knows it
}

// unlock ends an access to the topic, whatever the access has changed. It forgets each
// message that every group has settled together with all earlier messages, tells the ledger,
// and wakes members. Without groups it forgets only removed messages.
func (t *topic) unlock() {
	defer t.mu.Unlock()
	floor, unsettled := t.log.next(), 0
	for _, g := range t.groups {
		floor = min(floor, g.floor)
		unsettled += g.lag() + g.open
		g.alert()
	}
	messages, bytes := t.log.trim(floor, len(t.groups) > 0 || t.groups == nil)
	if messages > 0 || unsettled != t.unsettled {
		t.ledger.change(-messages, -bytes, unsettled-t.unsettled)
		t.unsettled = unsettled
	}
}

// store stores r, a copy of m. It returns nil and stores nothing if m is a duplicate. It
// returns an error if a limit is exceeded.
func (t *topic) store(m *backend.Message, r *record) error {
	m.Position, m.Duplicate = "", false
	if m.Once {
		if m.Position, m.Duplicate = t.once.find(m.Mark(), r.stored); m.Duplicate {
			return nil
		}
	}
	size := m.Size()
	if err := t.ledger.enter(size); err != nil {
		return err
	}
	t.log.store(r)
	t.log.largest = max(t.log.largest, size)
	m.Position = r.message.Position
	if m.Once {
		t.once.add(m.Mark(), m.Position, r.stored)
	}
	return nil
}

// losses returns a notice for each group with unsettled messages.
func (t *topic) losses() (notices []func()) {
	t.mu.Lock()
	defer t.unlock()
	for name, g := range t.groups {
		if n := g.lag() + g.open; n > 0 && g.notify != nil {
			notices = append(notices, func() {
				g.notify(backend.Notice{Topic: t.name, Group: name, Text: fmt.Sprintf("%d events that the group has not settled are lost, because the memory backend is closed", n)})
			})
		}
	}
	return notices
}

// end forgets all messages and returns the first unused offset. Later calls of the members
// fail with err.
func (t *topic) end(err error) (unused uint64) {
	t.mu.Lock()
	defer t.unlock()
	for _, g := range t.groups {
		g.end(err)
	}
	t.groups = nil
	return t.log.next()
}
