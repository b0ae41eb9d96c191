package backend

import (
	"cmp"
)

// A Message is an event in the form in which a broker stores it.
type Message struct {
	Topic string

	// ID is the ID of the event: any UTF-8 text of at most 512 bytes, including control
	// characters. Several messages may have the same ID.
	ID string

	// Key is any UTF-8 text of at most 512 bytes. Messages with the same key are kept in order. A
	// message with an empty Key has no key.
	Key string

	// Headers are a few small texts. Drivers keep names and values exactly as they are. The bus
	// sends at most 128 headers, of at most 48 KiB together. Names are HTTP tokens, and values
	// are UTF-8 text without control characters. A driver may refuse others with [ErrRefused].
	Headers Headers
	Payload []byte

	// Position is where the message is in its topic. Publish and Receive set it, to the same
	// value in every group. Positions compare as strings: a message stored later in the same
	// topic has a greater position. Groups and Readers see messages in this order, even while
	// several callers publish: no message appears below one that was visible before.
	//
	// In a topic that was deleted and created again, each position is greater than all positions
	// of the deleted topic. Otherwise Attach and ResetGroup must refuse the old positions; see
	// [StartAfter].
	Position string

	// AtPosition is the position at which to store the message, if the backend states
	// [Limits].Positions; the bus sets it for no other backend. If it is not a position of the
	// backend, or not greater than the position of each message that the topic has stored, the
	// error matches [ErrRefused], and the other messages are stored. If it is empty, the backend
	// chooses. AtPosition is not stored with the message.
	AtPosition string

	// Once asks the backend not to store a duplicate. The message is a duplicate if the topic
	// stored another message with Once and the same ID, or the same OnceKey, within the last
	// [Limits].OnceWindow. The topic remembers the ID for all processes, even if the earlier
	// message is settled or removed; if that message is no longer stored, a restart of the broker
	// may forget its ID. A duplicate does not restart the window. Once has no effect if
	// OnceWindow is zero.
	Once bool

	// OnceKey replaces ID for the purpose of Once, unless it is empty: any UTF-8 text of at most
	// 512 bytes. It is not stored with the message.
	OnceKey string

	// Duplicate is set by Publish: true if the message is a duplicate (see Once), and false if it
	// is stored. The Position of a duplicate is that of the earlier message, or empty if the
	// backend does not know it.
	Duplicate bool
}

// Size returns the number of bytes by which a message counts toward limits: payload, ID, key, and
// the names and values of headers.
func (m *Message) Size() int {
	return len(m.Payload) + len(m.ID) + len(m.Key) + m.Headers.Size()
}

// Mark returns the text that Once remembers: OnceKey or, if that is empty, ID.
func (m *Message) Mark() string { return cmp.Or(m.OnceKey, m.ID) }

// A Delivery is a message as one member of a group has received it.
type Delivery struct {
	Message

	// Attempt is the number of times the message was delivered in this group, including this one
	// but without refunded deliveries (see [Delayed]). It is 0 if the backend does not count.
	Attempt int

	// Redelivered reports whether the message was delivered in this group before, as far as the
	// broker remembers. Unlike Attempt, it includes refunded deliveries.
	Redelivered bool

	// Token is for the driver. The bus does not look at it, and passes it back unchanged to Ack,
	// Delay and Extend.
	Token any

	// Err is set if the message cannot be handled. If the stored body is unreadable, Payload has
	// the raw bytes. If the body is gone, Err matches [ErrGone]. In both cases Position, Attempt
	// and Token are set, and other fields may be empty.
	Err error
}

// Lend returns pointers to the elements of ds, for Ack and Extend.
func Lend(ds []Delivery) []*Delivery {
	lent := make([]*Delivery, len(ds))
	for i := range ds {
		lent[i] = &ds[i]
	}
	return lent
}

// A Header is a name and its value.
type Header struct{ Name, Value string }

// Headers are names and values. Names are unique and case-sensitive. Their order has no meaning.
// The zero value is empty and ready to use.
type Headers []Header

// Get returns the value of name, or "" if there is none.
func (h Headers) Get(name string) string {
	v, _ := h.Lookup(name)
	return v
}

// Lookup returns the value of name, and whether there is one.
func (h Headers) Lookup(name string) (string, bool) {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value, true
		}
	}
	return "", false
}

// Set sets the value of name, replacing any earlier value.
func (h *Headers) Set(name, value string) {
	for i := range *h {
		if (*h)[i].Name == name {
			(*h)[i].Value = value
			return
		}
	}
	*h = append(*h, Header{name, value})
}

// Del removes name and its value, if present.
func (h *Headers) Del(name string) {
	for i := range *h {
		if (*h)[i].Name == name {
			*h = append((*h)[:i], (*h)[i+1:]...)
			return
		}
	}
}

// Size returns the total number of bytes of all names and values.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return n
}
