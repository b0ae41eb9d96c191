package inmemory

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A topic is a log and the groups that read it.
type topic struct {
	totals *totals
	name   string

	mu        sync.Mutex // guards the fields below, and the groups with their members
	settings  backend.TopicSettings
	log       log
	once      onceIDs
	groups    map[string]*group // nil after the topic was deleted, or the backend closed
	unsettled int               // number of unsettled messages of all groups, as totals knows it
}

// unlock ends an access to the topic, whatever the access has changed. It forgets each
// message that every group has settled together with all earlier messages and that is older than
// Keep, updates totals, and wakes members. Without groups it forgets only removed messages.
func (t *topic) unlock() {
	defer t.mu.Unlock()
	floor, unsettled := t.settledOffset(), 0
	for _, g := range t.groups {
		unsettled += g.lag() + g.open
		g.wakeNext()
	}
	if t.settings.Keep > 0 && t.groups != nil {
		floor = min(floor, t.log.offsetAt(time.Now().Add(-t.settings.Keep)))
	}
	messages, bytes := t.log.trim(floor, len(t.groups) > 0 || t.groups == nil)
	if messages > 0 || unsettled != t.unsettled {
		t.totals.add(-messages, -bytes, unsettled-t.unsettled)
		t.unsettled = unsettled
	}
}

// settledOffset returns the offset below which every group has settled all messages.
func (t *topic) settledOffset() (floor uint64) {
	floor = t.log.next()
	for _, g := range t.groups {
		floor = min(floor, g.floor)
	}
	return floor
}

// makeRoom counts a new message of a size. It makes room by forgetting messages that every group has settled.
// If that is not enough, it returns an error and counts nothing.
func (t *topic) makeRoom(size int) error {
	floor := t.log.first
	if len(t.groups) > 0 {
		floor = t.settledOffset()
	}
	for {
		err := t.checkFull(size)
		if err == nil {
			err = t.totals.reserve(size)
		}
		if !errors.Is(err, backend.ErrFull) || t.log.first >= floor {
			return err
		}
		messages, bytes := t.log.trim(t.log.first+1, true)
		t.totals.add(-messages, -bytes, 0)
	}
}

// checkFull returns an error if a message of a size would exceed a limit of the topic.
func (t *topic) checkFull(size int) error {
	messages, bytes := t.settings.MaxMessages, t.settings.MaxBytes
	switch {
	case bytes > 0 && int64(size) > bytes:
		return backend.ErrTooLarge
	case messages > 0 && int64(t.log.kept) >= messages, bytes > 0 && t.log.bytes+int64(size) > bytes:
		return fmt.Errorf("%w: the topic has %d messages of %d bytes", backend.ErrFull, t.log.kept, t.log.bytes)
	}
	return nil
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
	if err := t.makeRoom(size); err != nil {
		return err
	}
	t.log.store(r, size)
	m.Position = r.message.Position
	if m.Once {
		t.once.add(m.Mark(), m.Position, r.stored)
	}
	return nil
}

// lossNotices returns a notice for each group with unsettled messages.
func (t *topic) lossNotices() (notices []func()) {
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
