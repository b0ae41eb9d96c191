// Package history records publishes and deliveries on a bus, and checks them against rules.
package history

import "sync"

// A Kind is a kind of event.
type Kind uint8

// The kinds, in about the order in which they happen to a message.
const (
	Tried     Kind = iota // its publish begins
	Stored                // its publish succeeded: it is stored
	Refused               // its publish failed: it is certainly not stored
	Delivered             // a handler begins with it
	Handled               // the handler succeeded: the next message of the key may begin
	Returned              // it was given back, and will be redelivered
	Acked                 // its acknowledgement is confirmed
	Buried                // it was found among the dead letters of its group
	Lost                  // its lease was lost: the order of its key is not checked for it
)

// An Event is one event of one message.
type Event struct {
	Kind          Kind
	ID            string
	Key           string // only of Tried
	Group, Member string // from Delivered on; Buried has no member
	Attempt       int    // only of Delivered
}

// A History has events in the order in which they were recorded. Its methods are safe for
// concurrent use. Record an event before the call that lets others continue, and after the
// call that it waited for. So record Tried before Publish is called, Stored after it has
// returned, and Delivered first in a handler.
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

// Publish calls publish, and records Tried before and the outcome after it: Stored if the
// error is nil, and Refused if notStored returns true for it. Otherwise the outcome is not
// known, and nothing is recorded.
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
