package backend

import "time"

// A Message is what is stored: bytes and names, no policy.
type Message struct {
	Topic string
	ID    string // of the event; free text of at most 512 bytes, not unique by itself
	Key   string // free text of at most 512 bytes: messages of one key belong in order; empty: none

	// Headers are a few small texts. Drivers keep names and values exactly.
	Headers Headers
	Payload []byte

	// Once asks to store the message only if no other with Once and this ID was
	// stored in this topic within the backend's window ([Limits].OnceWindow).
	Once bool

	// Position says where the message is stored. It is set by Publish and on
	// receipt, is the same on every receipt in every group, and compares as a
	// string: a message stored later in the same topic has a greater one.
	Position string

	// Duplicate is set by Publish where Once found an earlier copy; Position is
	// then that of the earlier copy, or empty if the backend does not know it.
	Duplicate bool
}

// Size is what a message counts against limits in bytes: payload, names and
// values.
func (m *Message) Size() int {
	return len(m.Payload) + len(m.ID) + len(m.Key) + m.Headers.Size()
}

// A Delivery is one receipt of a message by one member of a group.
type Delivery struct {
	Message

	// Attempt says how often the message was handed out in this group, this
	// time included; 0 if the backend does not count.
	Attempt int

	// Token is the driver's own. It is handed back untouched.
	Token any

	// Err says why there is no message to handle: the stored body is
	// unreadable, and Payload holds the raw bytes; or it is gone, and the error
	// matches [ErrGone]. Position is set all the same, the rest may be empty.
	Err error
}

// Lend returns pointers to ds, as Ack and Extend take them.
func Lend(ds []Delivery) []*Delivery {
	lent := make([]*Delivery, len(ds))
	for i := range ds {
		lent[i] = &ds[i]
	}
	return lent
}

// A Delayed is a delivery to be given back.
type Delayed struct {
	Delivery
	For    time.Duration // until it is due again; zero or less: at once
	Refund bool          // this receipt does not count as an attempt, where [Limits].Refund
}

// A Header is one name and its value.
type Header struct{ Name, Value string }

// Headers are names and values. Names are unique and compared exactly; their
// order means nothing. The zero value is empty and ready to use.
type Headers []Header

// Get returns the value of name, or "".
func (h Headers) Get(name string) string {
	v, _ := h.Lookup(name)
	return v
}

// Lookup returns the value of name and whether there is one.
func (h Headers) Lookup(name string) (string, bool) {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value, true
		}
	}
	return "", false
}

// Set gives name a value, in place of any other.
func (h *Headers) Set(name, value string) {
	for i := range *h {
		if (*h)[i].Name == name {
			(*h)[i].Value = value
			return
		}
	}
	*h = append(*h, Header{name, value})
}

// Del removes name.
func (h *Headers) Del(name string) {
	for i := range *h {
		if (*h)[i].Name == name {
			*h = append((*h)[:i], (*h)[i+1:]...)
			return
		}
	}
}

// Size is the bytes of all names and values.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return n
}
