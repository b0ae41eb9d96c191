package inmemory

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// totals counts the stored and unsettled messages of all topics together, and enforces their limits.
type totals struct {
	maxMessages int
	maxBytes    int64
	closed      atomic.Bool // set by Close of the backend

	mu              sync.Mutex // taken after a topic's lock; no lock is taken after it
	messages        int
	bytes           int64
	unsettled       int // sum over all groups of their unsettled messages
	ephemeralGroups map[*group]struct{}
	settled         chan struct{} // closed when unsettled becomes zero; nil if no call waits for it
}

// reserve counts a new message. If the message exceeds a limit, enter returns an error and
// counts nothing.
func (l *totals) reserve(size int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case int64(size) > l.maxBytes:
		return backend.ErrTooLarge
	case l.messages+1 > l.maxMessages, l.bytes+int64(size) > l.maxBytes:
		return backend.ErrFull
	}
	l.messages++
	l.bytes += int64(size)
	return nil
}

// listEphemeral returns the ephemeral groups of all topics.
func (l *totals) listEphemeral() []*group {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.ephemeralGroups))
}

// addEphemeral adds an ephemeral group to ephemerals, and remove removes it.
func (l *totals) addEphemeral(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ephemeralGroups[g] = struct{}{}
}

func (l *totals) removeEphemeral(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ephemeralGroups, g)
}

// add adds to the counts. Each number may be negative.
func (l *totals) add(messages int, bytes int64, unsettled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages += messages
	l.bytes += bytes
	l.unsettled += unsettled
	if l.unsettled == 0 && l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}

// whenSettled returns a channel that is closed as soon as no message is unsettled.
func (l *totals) whenSettled() <-chan struct{} {
	defer l.add(0, 0, 0) // closes the channel if no message is unsettled now
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled == nil {
		l.settled = make(chan struct{})
	}
	return l.settled
}
