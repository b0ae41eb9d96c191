package publish

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one call of Publish. The lock of calls guards its state and certain, and err
// while the queue has the call.
type call struct {
	ctx   context.Context
	until time.Time          // when the call times out; zero: never
	msgs  []*backend.Message // the messages of the present try
	size  size               // of all messages

	state   state
	certain bool          // no earlier try can have stored msgs
	line    *line         // where it waits, in state queued
	flight  flight        // the write by its caller itself
	err     error         // the result of the try, in state written or dropped
	woken   chan struct{} // gets a value when a state ends for which the caller waits
}

type state uint8

const (
	outside state = iota // the call waits for room
	between              // it has entered, and is between two tries or before the first
	queued               // it waits for a write of the queue
	writing              // it is being written
	written              // the queue has written it
	dropped              // it has made room for a later call (DropOldest)
	left                 // the queue writes it, but its caller no longer waits
)

// wake wakes the caller, which waits for a change to the given state.
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
