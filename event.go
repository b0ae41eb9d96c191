package eventbus

import (
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/letter"
)

// An Event is something that happened. Its attributes have the names and the
// meaning of CloudEvents.
type Event struct {
	ID          string // if empty, Publish sets a UUIDv7; at most 512 bytes
	Type        string // the kind of event, such as "order.placed"
	Source      string // the program that publishes the event; if empty, Publish sets Options.Service
	Subject     string // the thing that the event is about, such as an order number
	ContentType string // the format of Payload, such as "application/json"

	// Key names a sequence of events whose order matters. Events of one key in one topic
	// are stored in the order of publishing. By default each member of a group handles its
	// events of one key one after another, see Order. Members do not wait for each other.
	// Empty: no order. At most 512 bytes.
	Key string

	Time time.Time // when the event happened; if zero, Publish sets the present time

	// TTL is how long after Time handlers may get the event; zero: for ever. After that
	// time the event has expired: see SubscribeOptions.DeadLetterExpired. A dead letter
	// does not expire. An event that package deadletter redrives does not expire either.
	TTL time.Duration

	// Retry changes the retries of this event, in every group. Publish stores it with the
	// event.
	Retry *RetryRule

	Headers Headers // names and values that the program chooses, see MaxHeaders
	Payload []byte

	// Position says where the event is stored in its topic. Publish sets it, and the bus
	// sets it in each Delivery. Positions compare as strings: a later event of the topic
	// has a greater one.
	Position string
}

// Headers are names and values. A name is a token as in HTTP, but case-sensitive, and
// occurs once. A value is UTF-8 without control characters. Publish refuses names that
// begin with "ce-", "eventbus-" or "nats-", in any letter case, because they are reserved.
// The headers of a dead letter that begin with "eventbus-dead-" are the fields of
// DeadLetter.
type Headers = backend.Headers

// A Header is one name and its value.
type Header = backend.Header

// A Delivery is one receipt of an event by a member of a group. It is plain data, so a
// test can make one. A handler may keep a Delivery and change its fields. It may keep the
// bytes of Payload too, but must not overwrite them, because a dead letter carries the
// same bytes.
type Delivery struct {
	Event
	Topic, Group string
	Attempt      int  // the number of this attempt, from 1; if the backend does not count receipts, it counts only failures in this member
	MaxAttempts  int  // the last attempt: if it fails, the event has failed for good; Retry.Rules may differ for some errors; 0: no limit
	Redelivered  bool // a member of the group received the event before, as far as the broker remembers; true too after a failure, and for a redriven event
	Manual       bool // the handler is a [ManualHandler], so a middleware must not take its nil result as success
}

// LastAttempt reports whether the event fails for good if this attempt fails. It ignores
// Retry.Rules, which may set another limit for some errors.
func (d *Delivery) LastAttempt() bool { return d.MaxAttempts > 0 && d.Attempt >= d.MaxAttempts }

// The names of the message headers that store the attributes of an event.
const (
	attributePrefix = "ce-"
	typeName        = attributePrefix + "type"
	sourceName      = attributePrefix + "source"
	subjectName     = attributePrefix + "subject"
	timeName        = attributePrefix + "time"
	contentTypeName = attributePrefix + "datacontenttype"
	expiresName     = letter.Expiry
	retryName       = letter.Retry

	attributes = 7
)

// encode sets every field of m but Once, so that m stores e. stamp is e.Time as text. The
// headers of m are appended to room, which must have capacity for them.
func (e *Event) encode(m *backend.Message, topic, stamp string, room Headers) Headers {
	from := len(room)
	room = append(room, e.Headers...)
	set := func(name, value string) {
		if value != "" {
			room = append(room, Header{Name: name, Value: value})
		}
	}
	set(typeName, e.Type)
	set(sourceName, e.Source)
	set(subjectName, e.Subject)
	set(contentTypeName, e.ContentType)
	set(timeName, stamp)
	if e.TTL > 0 {
		set(expiresName, e.Time.Add(e.TTL).UTC().Format(time.RFC3339Nano))
	}
	if e.Retry != nil {
		set(retryName, e.Retry.text())
	}
	m.Topic, m.ID, m.Key, m.Payload = topic, e.ID, e.Key, e.Payload
	m.Headers = room[from:len(room):len(room)]
	m.Position, m.Duplicate = "", false
	return room
}

// EventOf returns the event that a message stores. A program that reads a topic without a
// group, by [backend.Read], calls it. The event shares the payload of m.
func EventOf(m *backend.Message) Event {
	var e Event
	e.decode(m)
	return e
}

// decode sets e to the event that m stores. e shares the payload of m. A header of m that
// is not an attribute becomes a header of e.
func (e *Event) decode(m *backend.Message) {
	e.ID, e.Key, e.Payload, e.Position = m.ID, m.Key, m.Payload, m.Position
	headers := 0
	for i := range m.Headers {
		if !e.setAttribute(&m.Headers[i]) {
			headers++
		}
	}
	if e.TTL > 0 {
		e.TTL = ttl(m, e.Time)
	}
	if headers == 0 {
		return
	}
	e.Headers = make(Headers, 0, headers)
	for i := range m.Headers {
		if !isAttribute(m.Headers[i].Name) {
			e.Headers = append(e.Headers, m.Headers[i])
		}
	}
}

// expiry returns the time when the event of m expires, or zero if the event never expires.
func expiry(m *backend.Message) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, m.Headers.Get(expiresName))
	return t
}

// ttl returns the TTL of the event that m stores. at is the Time of that event.
func ttl(m *backend.Message, at time.Time) time.Duration {
	end := expiry(m)
	switch {
	case end.IsZero():
		return 0
	case at.IsZero(): // the publisher stored no Time
		at = time.Now()
	}
	return max(end.Sub(at), 1)
}

// expired returns the error for d if its TTL has passed since its Time, or nil. With bury,
// the event becomes a dead letter.
func (d *Delivery) expired(bury bool) error {
	if end := d.Time.Add(d.TTL); d.TTL > 0 && !d.Time.IsZero() && time.Now().After(end) {
		return engine.Expired(end, bury)
	}
	return nil
}

// setAttribute sets the field of e that h stores. It reports whether h is an attribute.
func (e *Event) setAttribute(h *Header) bool {
	if !isAttribute(h.Name) {
		return false
	}
	switch h.Name {
	case typeName:
		e.Type = h.Value
	case sourceName:
		e.Source = h.Value
	case subjectName:
		e.Subject = h.Value
	case contentTypeName:
		e.ContentType = h.Value
	case expiresName:
		e.TTL = 1 // not zero; decode computes the TTL when Time is known
	case retryName:
		e.Retry = readRule(h.Value)
	case letter.RedriveID:
		e.ID = h.Value
	case timeName:
		// Another program may store a text that is not a time. Time is then zero.
		e.Time, _ = time.Parse(time.RFC3339Nano, h.Value)
	}
	return true
}

// isAttribute reports whether a header is an attribute of CloudEvents. Handlers do not see
// the attributes of other programs.
func isAttribute(name string) bool { return strings.HasPrefix(name, attributePrefix) }
