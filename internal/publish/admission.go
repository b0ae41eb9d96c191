package publish

import (
	"errors"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A WhenFull says how Publish treats a call for which there is no room, because of
// Options.MaxPending or Options.MaxPendingBytes.
type WhenFull uint8

// The values of WhenFull.
const (
	Wait       WhenFull = iota // the call waits until there is room
	Reject                     // the call fails with ErrBackpressure
	DropNewest                 // the call fails with ErrDropped
	DropOldest                 // the oldest calls that were not sent fail with ErrDropped
)

// ErrBackpressure means that a call was refused, or timed out, because there was no room.
var ErrBackpressure = errors.New("eventbus: too many events wait to be published")

// ErrDropped means that a call was dropped because there was no room, see WhenFull.
var ErrDropped = errors.New("eventbus: dropped, because too many events wait to be published")

// admission bounds the messages and the bytes of all calls that have entered: calls that
// were let in and have not left. It lets waiting calls enter in their order, so that many
// small calls do not starve a large one.
type admission struct {
	maxMessages, maxBytes int // 0: no bound
	whenFull              WhenFull

	mu         sync.Mutex
	in         size       // the size of all calls that have entered and not left
	line       []*entrant // the calls that wait to enter
	droppables droppables // used with DropOldest only

	closed bool
	idle   chan struct{} // closed when the last call leaves; nil before close, and when closed
}

// A size is the number of messages and bytes of a call.
type size struct{ messages, bytes int }

func sizeOf(msgs []*backend.Message) size {
	s := size{messages: len(msgs)}
	for _, m := range msgs {
		s.bytes += m.Size()
	}
	return s
}

func (s size) plus(other size) size {
	return size{s.messages + other.messages, s.bytes + other.bytes}
}

func (s size) minus(other size) size {
	return size{s.messages - other.messages, s.bytes - other.bytes}
}

// An entrant is a call that waits to enter.
type entrant struct {
	size
	in chan struct{} // closed when it has entered
}

// ask lets a call of size s enter, or returns an entrant that waits. With DropOldest it
// returns a droppable for a call that has entered.
func (a *admission) ask(s size) (*entrant, *droppable, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, nil, backend.ErrClosed
	case len(a.line) == 0 && a.fits(a.in, s):
	case a.whenFull == Reject:
		return nil, nil, notSent(ErrBackpressure)
	case a.whenFull == DropNewest, a.whenFull == DropOldest && !a.makeRoom(s):
		return nil, nil, notSent(ErrDropped)
	case a.whenFull == Wait:
		e := &entrant{s, make(chan struct{})}
		a.line = append(a.line, e)
		return e, nil, nil
	}
	a.in = a.in.plus(s)
	if a.whenFull == DropOldest {
		return nil, a.droppables.add(s), nil
	}
	return nil, nil, nil
}

// fits reports whether a call of size s may enter besides calls of size in. If in is empty
// it always may, so that a call larger than the bounds can enter alone.
func (a *admission) fits(in, s size) bool {
	return in.messages == 0 ||
		(a.maxMessages == 0 || in.messages+s.messages <= a.maxMessages) &&
			(a.maxBytes == 0 || in.bytes+s.bytes <= a.maxBytes)
}

// makeRoom drops the oldest calls that can be dropped until s fits. If dropping all of them
// does not help, it drops none and returns false.
func (a *admission) makeRoom(s size) bool {
	if !a.fits(a.in.minus(a.droppables.waiting), s) {
		return false
	}
	for !a.fits(a.in, s) {
		a.in = a.in.minus(a.droppables.dropOldest())
	}
	return true
}

// giveUp takes e off the line. It returns false if e has entered meanwhile.
func (a *admission) giveUp(e *entrant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.line, e)
	if at < 0 {
		return false
	}
	a.line = slices.Delete(a.line, at, at+1)
	a.next()
	return true
}

// leave ends a call of size s that has entered. It ignores a dropped call, which has
// already left.
func (a *admission) leave(s size, t *droppable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t == nil || a.droppables.withdraw(t) {
		a.in = a.in.minus(s)
		a.next()
	}
}

// begin notes that a call is about to be sent and can no longer be dropped. It returns false
// if the call was dropped before.
func (a *admission) begin(t *droppable) bool {
	if t == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.droppables.withdraw(t)
}

// again notes that a call waits for another try and can be dropped again, because the
// messages to be tried are certainly not stored.
func (a *admission) again(t *droppable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.droppables.resume(t)
}

// next lets the first calls of the line enter, as many as there is room for.
func (a *admission) next() {
	for len(a.line) > 0 && a.fits(a.in, a.line[0].size) {
		a.in = a.in.plus(a.line[0].size)
		close(a.line[0].in)
		a.line = slices.Delete(a.line, 0, 1)
	}
	if a.idle != nil && a.in.messages == 0 {
		close(a.idle)
		a.idle = nil
	}
}

// close refuses later calls. It returns a channel that is closed when every call has left.
func (a *admission) close() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	idle := make(chan struct{})
	a.closed, a.idle = true, idle
	a.next()
	return idle
}
