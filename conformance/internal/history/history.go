// Package history records what happened on a bus and finds in it, in one pass,
// what should not have.
package history

import "sync"

// A Kind says what happened.
type Kind uint8

// What can happen to a message, in about this order.
const (
	Tried     Kind = iota // its publish begins
	Stored                // its publish returned: it is stored
	Refused               // its publish returned: it is certainly not stored
	Delivered             // a handler begins with it
	Handled               // the handler ended well: the next of its key may begin
	Returned              // it was given back, and will come again
	Acked                 // its acknowledgement is confirmed
	Buried                // it was found among the dead letters of its group
)

// An Event is one thing that happened to one message.
type Event struct {
	Kind          Kind
	ID            string
	Key           string // of Tried
	Group, Member string // from Delivered on; Buried has no member
	Attempt       int    // of Delivered
}

// A History is events in the order in which they were recorded. Its methods are
// safe for concurrent use. Record before what lets others go on, and after what
// was waited for: Tried before Publish is called, Stored after it has returned,
// Delivered first in a handler.
type History struct {
	mu     sync.Mutex
	events []Event
}

// Record adds an event.
func (h *History) Record(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// Publish records around publish, which it calls, what comes of a message:
// Stored if the error is nil, Refused if notStored says so, and otherwise that
// nobody knows.
func (h *History) Publish(id, key string, publish func() error, notStored func(error) bool) error {
	h.Record(Event{Kind: Tried, ID: id, Key: key})
	err := publish()
	switch {
	case err == nil:
		h.Record(Event{Kind: Stored, ID: id})
	case notStored(err):
		h.Record(Event{Kind: Refused, ID: id})
	}
	return err
}

// Len returns how many events were recorded.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}
