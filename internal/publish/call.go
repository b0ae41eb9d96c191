package publish

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one call of Publish. The lock of calls guards its state and certain. It also guards err
// while the queue has the call.
type call struct {
	ctx   context.Context
	until time.Time          // when the call times out; zero if it never does
	msgs  []*backend.Message // the messages of the current try
	size  size               // of all messages

	state   state
	certain bool          // no earlier try can have stored msgs
	queue   *callQueue    // the queue in which it waits, in state queued
	flight  flight        // the write, if the caller makes it itself
	err     error         // the result of the try, in state written or dropped
	woken   chan struct{} // gets a value when the state that the caller waits for is reached
}

type state uint8

const (
	outside state = iota // the call is waiting for capacity
	between              // it has entered, and is between two tries or before the first
	queued               // it is waiting for the queue to write it
	writing              // it is being written
	written              // the queue has written it
	dropped              // it was dropped in favor of a later call (DropOldest)
	left                 // the queue is writing it, but its caller no longer waits
)

// wake wakes the caller, which is waiting for a change to the given state.
func (c *call) wake(to state, err error) {
	c.state, c.err = to, err
	c.woken <- struct{}{}
}

// droppable reports whether DropOldest may drop c.
func (c *call) droppable() bool {
	return c.certain && (c.state == between || c.state == queued)
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

// A WhenFull says what Publish does with a call that doesn't fit into Options.MaxPending or
// Options.MaxPendingBytes.
type WhenFull uint8

// The values of WhenFull.
const (
	Wait       WhenFull = iota // the call waits until it fits
	Reject                     // the call fails with ErrBackpressure
	DropNewest                 // the call fails with ErrDropped
	DropOldest                 // the oldest calls that haven't been sent fail with ErrDropped
)

// ErrBackpressure means that a call was refused, or timed out, because the publisher was full.
var ErrBackpressure = errors.New("eventbus: too many events wait to be published")

// ErrDropped means that a call was dropped because the publisher was full. See WhenFull.
var ErrDropped = errors.New("eventbus: dropped, because too many events wait to be published")

// calls holds the state of all Publish calls. This file limits the calls that have entered and not
// left. Waiting calls enter in order, so that many small calls don't starve a large one. The
// methods in slot.go choose the calls of each write.
type calls struct {
	maxMessages, maxBytes int // 0 for no limit
	whenFull              WhenFull

	mu      sync.Mutex
	in      size    // the size of all calls that have entered and not left
	waiting []*call // the calls in state outside, in order
	entered []*call // the calls that have entered, oldest first; empty without DropOldest

	queue   callQueue // the calls in state queued, except those in the queues of suspects and fences
	serving int       // the goroutines of the queue whose write is not silent; each has a slot
	coming  int       // how many of them have not taken calls yet
	free    int       // write slots that are free
	flights

	closed bool
	idle   chan struct{} // closed when the last call leaves; nil before close, and when closed
}

// enter lets c enter. If the publisher is full and c must wait, enter returns true, and wakes c
// later.
func (cs *calls) enter(c *call) (waits bool, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case cs.closed:
		return false, backend.ErrClosed
	case len(cs.waiting) == 0 && cs.fits(cs.in, c.size):
	case cs.whenFull == Wait:
		c.state = outside
		cs.waiting = append(cs.waiting, c)
		return true, nil
	case cs.whenFull == Reject:
		return false, notSent(ErrBackpressure)
	case cs.whenFull == DropNewest || !cs.makeRoom(c.size):
		return false, notSent(ErrDropped)
	}
	c.state = between
	cs.in = cs.in.plus(c.size)
	if cs.whenFull == DropOldest {
		cs.entered = append(cs.entered, c)
	}
	return false, nil
}

// fits reports whether a call of size s may enter beside calls of size in. If in is empty it always
// may, so a call that is larger than the limits can enter alone.
func (cs *calls) fits(in, s size) bool {
	return in.messages == 0 ||
		(cs.maxMessages == 0 || in.messages+s.messages <= cs.maxMessages) &&
			(cs.maxBytes == 0 || in.bytes+s.bytes <= cs.maxBytes)
}

// makeRoom drops the oldest calls that may be dropped until a call of size s fits. If even dropping
// all of them isn't enough, it drops none and returns false.
func (cs *calls) makeRoom(s size) bool {
	var victims []*call
	in := cs.in
	for _, c := range cs.entered {
		if cs.fits(in, s) {
			break
		}
		if c.droppable() {
			victims, in = append(victims, c), in.minus(c.size)
		}
	}
	if !cs.fits(in, s) {
		return false
	}
	for _, c := range victims {
		if c.state == queued {
			c.queue.remove(c)
		}
		cs.exit(c)
		c.wake(dropped, notSent(ErrDropped))
	}
	return true
}

// exit removes c from the calls that have entered.
func (cs *calls) exit(c *call) {
	cs.in = cs.in.minus(c.size)
	cs.entered = without(cs.entered, c)
}

// giveUp removes c from the waiting calls. It returns false if c has entered in the meantime.
func (cs *calls) giveUp(c *call) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.state != outside {
		<-c.woken
		return false
	}
	cs.waiting = without(cs.waiting, c)
	cs.next()
	return true
}

// rest records that c is waiting for another try. certain means that no try can have stored the
// messages.
func (cs *calls) rest(c *call, certain bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.state != left && c.state != dropped {
		c.state, c.certain = between, certain
	}
}

// leave ends c, which has entered. A dropped call has already left.
func (cs *calls) leave(c *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.state != dropped {
		cs.exit(c)
		cs.next()
	}
}

// next lets the first waiting calls enter, as many as fit.
func (cs *calls) next() {
	for len(cs.waiting) > 0 && cs.fits(cs.in, cs.waiting[0].size) {
		cs.in = cs.in.plus(cs.waiting[0].size)
		cs.waiting[0].wake(between, nil)
		cs.waiting = slices.Delete(cs.waiting, 0, 1)
	}
	if cs.idle != nil && cs.in.messages == 0 {
		close(cs.idle)
		cs.idle = nil
	}
}

// close refuses later calls. It returns a channel that is closed when every call has left.
func (cs *calls) close() <-chan struct{} {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	idle := make(chan struct{})
	cs.closed, cs.idle = true, idle
	cs.next()
	return idle
}

// without returns list without c, which it contains at most once.
func without(list []*call, c *call) []*call {
	if at := slices.Index(list, c); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}
