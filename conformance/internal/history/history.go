// Package history records publishes and deliveries on a bus, and checks them against rules.
package history

import "sync"

// A Kind is a kind of event.
type Kind uint8

// The kinds of events, in about the order in which they happen to a message.
const (
	Tried     Kind = iota // a call that publishes the message begins
	Stored                // the publishing succeeded: the message is stored
	Refused               // the publishing failed: the message is certainly not stored
	Delivered             // a handler begins with the message
	Handled               // the handler succeeded: the next message of the key may begin
	Returned              // the message was given back, and will be redelivered
	Acked                 // the acknowledgement of the message is confirmed
	Buried                // the message was found among the dead letters of its group
	Lost                  // the lease of the message was lost: the order of its key is not checked for this message
)

// An Event is one event of one message.
type Event struct {
	Kind          Kind
	ID            string
	Key           string // only set in a Tried event
	Group, Member string // set in Delivered and later kinds; a Buried event has no member
	Attempt       int    // attempt number; only set in a Delivered event
}

// A History has events in the order in which they were recorded. Its methods are safe for
// concurrent use. An event that causes another event must be recorded first, so the caller
// records Tried before it calls Publish, and Stored after Publish has returned. A handler
// records Delivered before it does anything else.
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

// Publish calls publish. Before the call it records Tried. After the call it records Stored
// if the error is nil, and Refused if notStored returns true for the error. After any other
// error it records nothing, because nobody knows whether the message is stored.
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
