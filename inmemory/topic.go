package inmemory

import (
	"sync"
)

// A topic is a log and the groups that read it.
type topic struct {
	backend *Backend
	name    string

	mu     sync.Mutex // guards the fields below, and the groups with their members
	log    log
	once   once
	groups map[string]*group
	ended  bool
}

// trim forgets each message that every group has settled together with all earlier
// messages. Without groups it forgets none.
func (t *topic) trim() {
	if len(t.groups) == 0 {
		return
	}
	floor := t.log.next()
	for _, g := range t.groups {
		floor = min(floor, g.floor)
	}
	t.backend.ledger.leave(t.log.trim(floor))
}

// trimRemoved forgets removed records at the beginning of the log, up to the first record
// that is not removed or that some group has not settled.
func (t *topic) trimRemoved() {
	first := t.log.first
	for first < t.log.next() && t.log.at(first).removed {
		first++
	}
	for _, g := range t.groups {
		first = min(first, g.floor)
	}
	t.log.trim(first)
}

// end forgets all messages and returns the first unused offset. Later calls of the members
// fail with err.
func (t *topic) end(err error) (unused uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		g.end(err)
	}
	t.groups, t.ended = nil, true
	t.backend.ledger.leave(t.log.trim(t.log.next()))
	return t.log.next()
}
