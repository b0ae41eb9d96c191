package backend

import "time"

// A Message is an event in the form in which a broker stores it. It has bytes and names, but
// no policy.
type Message struct {
	Topic string
	ID    string // the ID of the event: any UTF-8 of at most 512 bytes, control characters included; several messages may have the same ID
	Key   string // any UTF-8 of at most 512 bytes; messages of one key are kept in order; empty: no key

	// Headers are a few small texts. Drivers keep names and values exactly.
	Headers Headers
	Payload []byte

	// Position says where the message is stored. Publish sets it, and so does Receive,
	// to the same value in every group. Positions compare as strings: a message stored
	// later in the same topic has a greater position.
	Position string

	// Once asks the backend to store the message only if it stored no other message with
	// Once and this ID in this topic within [Limits].OnceWindow. Once has no effect if
	// OnceWindow is zero.
	Once bool

	// Publish sets Duplicate if an earlier copy was stored, see Once. Position is then
	// the position of the earlier copy, or empty if the backend does not know it.
	Duplicate bool
}

// Size is the number of bytes by which a message counts against limits: payload, ID, key,
// and the names and values of headers.
func (m *Message) Size() int {
	return len(m.Payload) + len(m.ID) + len(m.Key) + m.Headers.Size()
}

// A Delivery is one receipt of a message by one member of a group.
type Delivery struct {
	Message

	// Attempt is how often the message was delivered in this group, this delivery
	// included; 0 if the backend does not count.
	Attempt int

	// Redelivered is false if no member of the group has received the message before, as
	// far as the broker remembers. A receipt that was given back with [Delayed].Refund
	// counts as received.
	Redelivered bool

	// Token is a value that the driver sets and the bus does not read. The bus returns it
	// unchanged to Ack, Delay and Extend.
	Token any

	// Err is set if the message cannot be handled. If the stored body is unreadable,
	// Payload has the raw bytes. If the body is gone, Err matches [ErrGone]. Position is
	// set in both cases; other fields may be empty.
	Err error
}

// Lend returns a pointer to each element of ds, as Ack and Extend take them.
func Lend(ds []Delivery) []*Delivery {
	lent := make([]*Delivery, len(ds))
	for i := range ds {
		lent[i] = &ds[i]
	}
	return lent
}

// A Delayed is a delivery to be given back by [Delayer].Delay.
type Delayed struct {
	Delivery
	For    time.Duration // the time until the message is due again; zero or less: it is due immediately
	Refund bool          // this receipt does not count as an attempt, if [Limits].Refund
}

// A Header is one name and its value.
type Header struct{ Name, Value string }

// Headers are names and values. Names are unique and compared exactly. Their order means
// nothing. The zero value is empty and ready to use.
type Headers []Header

// Get returns the value of name, or "" if h does not contain name.
func (h Headers) Get(name string) string {
	v, _ := h.Lookup(name)
	return v
}

// Lookup returns the value of name, and whether h contains name.
func (h Headers) Lookup(name string) (string, bool) {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value, true
		}
	}
	return "", false
}

// Set sets the value of name, and replaces an earlier value.
func (h *Headers) Set(name, value string) {
	for i := range *h {
		if (*h)[i].Name == name {
			(*h)[i].Value = value
			return
		}
	}
	*h = append(*h, Header{name, value})
}

// Del removes name and its value, if there is one.
func (h *Headers) Del(name string) {
	for i := range *h {
		if (*h)[i].Name == name {
			*h = append((*h)[:i], (*h)[i+1:]...)
			return
		}
	}
}

// Size is the number of bytes of all names and values.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return n
}
