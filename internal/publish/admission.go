package publish

import (
	"errors"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A WhenFull says how a call that finds no room is treated.
type WhenFull uint8

// The choices.
const (
	Wait       WhenFull = iota // until there is room
	Reject                     // it fails with ErrBackpressure
	DropNewest                 // it fails with ErrDropped
	DropOldest                 // the oldest calls that were certainly not sent fail with ErrDropped
)

// ErrBackpressure: too much waits to be published.
var ErrBackpressure = errors.New("eventbus: too many events wait to be published")

// ErrDropped: the event was dropped because too much waits to be published.
var ErrDropped = errors.New("eventbus: dropped, because too many events wait to be published")

// admission bounds the messages and the bytes of all calls together. Waiting calls come in
// first come, first served, so that many small ones do not starve a large one.
type admission struct {
	maxMessages, maxBytes int // 0: no bound
	whenFull              WhenFull

	mu         sync.Mutex
	in         size // of the calls that are in
	line       []*entrant
	droppables droppables // DropOldest

	closed bool
	idle   chan struct{} // closed when no call is left; nil before close, and then
}

// A size is how much a call publishes.
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

// An entrant is a call that waits for room.
type entrant struct {
	size
	in chan struct{} // closed when it is in
}

// ask lets a call in, or returns an entrant that waits. With DropOldest a call that is in is
// a droppable.
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

// fits reports whether there is room besides in. A call that is larger than the bounds
// goes alone.
func (a *admission) fits(in, s size) bool {
	return in.messages == 0 ||
		(a.maxMessages == 0 || in.messages+s.messages <= a.maxMessages) &&
			(a.maxBytes == 0 || in.bytes+s.bytes <= a.maxBytes)
}

// makeRoom drops the oldest calls that wait, if room for s can be made in this way.
func (a *admission) makeRoom(s size) bool {
	if !a.fits(a.in.minus(a.droppables.waiting), s) {
		return false
	}
	for !a.fits(a.in, s) {
		a.in = a.in.minus(a.droppables.dropOldest())
	}
	return true
}

// giveUp takes e off the line. It returns false if e is in.
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

// leave ends a call that is in.
func (a *admission) leave(s size, t *droppable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t == nil || a.droppables.withdraw(t) {
		a.in = a.in.minus(s)
		a.next()
	}
}

// begin notes that a call is about to be sent, so that it cannot be dropped. It returns
// false if the call was dropped.
func (a *admission) begin(t *droppable) bool {
	if t == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.droppables.withdraw(t)
}

// again notes that a call, of which the rest is certainly not stored, waits for another
// try, so that it can be dropped.
func (a *admission) again(t *droppable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.droppables.resume(t)
}

// next lets in the first of the line, as many as there is room for.
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

// close refuses every later call. The channel is closed when no call is left.
func (a *admission) close() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	idle := make(chan struct{})
	a.closed, a.idle = true, idle
	a.next()
	return idle
}
