package inmemory

import (
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A ledger counts the messages of all topics together.
type ledger struct {
	maxMessages int
	maxBytes    int64

	mu        sync.Mutex // taken after a topic's lock; no lock is taken after it
	messages  int
	bytes     int64
	unsettled int           // messages, each counted once for each group that has it unsettled
	settled   chan struct{} // closed when unsettled is zero; nil without a waiting caller
}

// enter counts a new message, which the given number of groups will settle. If the message
// exceeds a bound, it returns an error and counts nothing.
func (l *ledger) enter(size, groups int) error {
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
	l.unsettled += groups
	return nil
}

// leave uncounts messages that the log has forgotten.
func (l *ledger) leave(messages int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages -= messages
	l.bytes -= bytes
}

// owe adds n to the unsettled count; n may be negative.
func (l *ledger) owe(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsettled += n
	l.announce()
}

// whenSettled returns a channel that is closed once no message is unsettled.
func (l *ledger) whenSettled() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled == nil {
		l.settled = make(chan struct{})
	}
	settled := l.settled
	l.announce()
	return settled
}

func (l *ledger) announce() {
	if l.unsettled == 0 && l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}
