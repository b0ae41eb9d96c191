package publish

import (
	"errors"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// ErrBackpressure: too much waits to be published.
var ErrBackpressure = errors.New("eventbus: too many events wait to be published")

// admission bounds the messages and the bytes of all calls together. Waiting calls come in
// first come, first served, so that many small ones do not starve a large one.
type admission struct {
	maxMessages, maxBytes int // 0: no bound
	reject                bool

	mu   sync.Mutex
	in   size // of the calls that are in
	line []*entrant

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

// An entrant is a call that waits for room.
type entrant struct {
	size
	in chan struct{} // closed when it is in
}

// ask lets a call in, or returns an entrant that waits.
func (a *admission) ask(s size) (*entrant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, backend.ErrClosed
	case len(a.line) == 0 && a.fits(s):
		a.add(s)
		return nil, nil
	case a.reject:
		return nil, notSent(ErrBackpressure)
	}
	e := &entrant{s, make(chan struct{})}
	a.line = append(a.line, e)
	return e, nil
}

// fits reports whether there is room. A call that is larger than the bounds goes alone.
func (a *admission) fits(s size) bool {
	return a.in.messages == 0 ||
		(a.maxMessages == 0 || a.in.messages+s.messages <= a.maxMessages) &&
			(a.maxBytes == 0 || a.in.bytes+s.bytes <= a.maxBytes)
}

func (a *admission) add(s size) {
	a.in.messages += s.messages
	a.in.bytes += s.bytes
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

func (a *admission) leave(s size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(size{-s.messages, -s.bytes})
	a.next()
}

// next lets in the first of the line, as many as there is room for.
func (a *admission) next() {
	for len(a.line) > 0 && a.fits(a.line[0].size) {
		a.add(a.line[0].size)
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
