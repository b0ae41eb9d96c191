package eventbus

import (
	"context"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/letter"
)

// An Event is something that happened. Its attributes have the names and the
// meaning of CloudEvents.
type Event struct {
	ID          string // if empty, Publish stores the event with a new UUIDv7; at most 512 bytes
	Type        string // the kind of event, such as "order.placed"; other programs need it, because CloudEvents require it
	Source      string // the program that publishes the event, as a URI reference; if empty, Publish stores Options.Service
	Subject     string // the thing that the event is about, such as an order number
	ContentType string // the format of Payload, such as "application/json"

	// Key names a sequence of events whose order matters. Events of one key in one topic
	// are stored in the order of publishing. By default each member of a group handles its
	// events of one key one after another, see Order. Members do not wait for each other,
	// unless the topic has partitions, see TopicOptions.Partitions.
	// Empty: no order. At most 512 bytes.
	Key string

	Time time.Time // when the event happened; if zero, Publish stores the present time

	// TTL is how long after Time handlers may get the event; zero: for ever. After that
	// time the event has expired: see SubscribeOptions.DeadLetterExpired. A dead letter
	// does not expire. An event that package deadletter redrives does not expire either.
	TTL time.Duration

	// Retry changes the retries of this event, in every group. Publish stores it with the
	// event.
	Retry *RetryRule

	// Once makes Publish store only one event with this text in the topic while the backend
	// remembers it (Limits.OnceWindow), whatever the IDs of the events are. It is not
	// stored with the event. Empty: Options.Dedup decides. At most 512 bytes.
	Once string

	// AtPosition is the position at which the event is to be stored. It must be greater than all
	// earlier positions of the topic; otherwise the event's error matches ErrRefused. Only a
	// backend with Limits.Positions takes it, such as Redis, where it may also be the ID of an
	// entry. It is for copies of another stream. Empty: the backend chooses.
	AtPosition string

	Headers Headers // names and values that the program chooses, see MaxHeaders
	Payload []byte

	// Position says where the event is stored in its topic. The bus sets it in each Delivery,
	// and Publish ignores it: see Receipt.Position. Positions compare as strings: a later
	// event of the topic has a greater one.
	Position string
}

// Headers are names and values. A name is a token as in HTTP, but case-sensitive, and
// occurs once. A value is UTF-8 without control characters. Publish refuses names that
// begin with "eventbus-" or "nats-", in any letter case, because they are reserved. The
// headers of a dead letter that begin with "eventbus-dead-" are the fields of DeadLetter.
//
// A name of "ce-" and lower-case letters or digits is an extension of CloudEvents, such as
// "ce-dataschema" or "ce-traceparent". A handler gets the extensions that another program
// has set, and may publish them again. Publish refuses any other name that begins with
// "ce-", and names that store a field, such as "ce-type".
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
	Partition    int  // the partition of the event, if its topic has some (TopicOptions.Partitions)

	// Epoch grows each time that the partition changes its owner. So a store that refuses a write
	// with a smaller Epoch of the same Partition refuses a member that was frozen while
	// another one took over. It is 0 if the topic has no partitions, and with EachInstance.
	Epoch int

	Manual bool // the handler is a [ManualHandler], so a middleware must not take its nil result as success

	run *engine.Run     // the run, for a ManualHandler; nil in other deliveries
	ctx context.Context // of the event, for a BatchHandler; nil in other deliveries
}

// Context returns the context of an event that a [BatchHandler] has got, with the values that
// Options.Middleware has added for this event. It ends when the run of the event ends, like
// the ctx of a [Handler]. A Handler has its ctx as a parameter, so for its deliveries, and
// for deliveries that the bus has not made, Context returns [context.Background].
func (d *Delivery) Context() context.Context {
	if d.ctx == nil {
		return context.Background() //nolint:forbidigo // it has no run
	}
	return d.ctx
}

// LastAttempt reports whether the event fails for good if this attempt fails. It ignores
// Retry.Rules, which may set another limit for some errors.
func (d *Delivery) LastAttempt() bool { return d.MaxAttempts > 0 && d.Attempt >= d.MaxAttempts }

// The names of the message headers that store the attributes of an event.
const (
	typeName        = cloudevent.Type
	sourceName      = cloudevent.Source
	subjectName     = cloudevent.Subject
	timeName        = cloudevent.Time
	contentTypeName = cloudevent.ContentType
	expiresName     = letter.Expiry
	retryName       = letter.Retry

	attributes = 8 // most headers that encode adds
)

// encode sets every field of m but Once and OnceKey, so that m stores e. stamp is e.Time as text. The
// headers of m are appended to room, which must have capacity for them.
func (e *Event) encode(m *backend.Message, topic, stamp string, room Headers) Headers {
	from := len(room)
	room = append(room, Header{Name: cloudevent.SpecVersion, Value: cloudevent.Version})
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
	m.Position, m.Duplicate, m.AtPosition = "", false, e.AtPosition
	return room
}

// MessageOf returns the message that stores e in topic. A program that keeps events in a
// place of its own before it publishes them, such as an outbox, stores the fields of the
// message. [EventOf] returns the event later. MessageOf checks e as Publish does, and returns
// a *FieldError. If e has no ID or no Time, the message has a new ID or the present time. The
// message shares the payload of e.
func MessageOf(topic string, e *Event) (*backend.Message, error) {
	if e != nil && e.AtPosition != "" {
		return nil, &FieldError{Field: "AtPosition", Reason: "is set, but only Publish stores an event at a position"}
	}
	return messageOf(topic, e, MaxPayload)
}

func messageOf(topic string, e *Event, most int) (*backend.Message, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	if e == nil {
		return nil, &FieldError{Field: "event", Reason: "is nil"}
	}
	if err := e.checkFields(most); err != nil {
		return nil, err
	}
	var s encoder
	filled, m := *e, new(backend.Message)
	s.fill(&filled, "", time.Now())
	filled.encode(m, topic, s.timeText(filled.Time), make(Headers, 0, len(e.Headers)+attributes))
	m.Once, m.OnceKey = e.Once != "", e.Once
	return m, nil
}

// EventOf returns the event that a message stores. A program that reads a topic without a
// group, by [backend.Read], calls it. The event shares the payload of m.
func EventOf(m *backend.Message) Event {
	var e Event
	stored := *m
	letter.Restore(&stored)
	e.decode(&stored)
	return e
}

// decode sets e to the event that m stores. e shares the payload of m. A header of m that
// stores no field becomes a header of e. [letter.Restore] was called for m.
func (e *Event) decode(m *backend.Message) {
	e.ID, e.Key, e.Payload, e.Position, e.Once = m.ID, m.Key, m.Payload, m.Position, m.OnceKey
	headers := 0
	for i := range m.Headers {
		if !e.setField(&m.Headers[i]) {
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
		if !isField(m.Headers[i].Name) {
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

// setField sets the field of e that h stores. It reports whether h stores a field.
func (e *Event) setField(h *Header) bool {
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
	case timeName:
		// Another program may store a text that is not a time. Time is then zero.
		e.Time, _ = time.Parse(time.RFC3339Nano, h.Value)
	default:
		return isField(h.Name)
	}
	return true
}

// isField reports whether a header stores a field of an event or a mark of the bus.
// Handlers see all other headers.
func isField(name string) bool {
	switch name {
	case typeName, sourceName, subjectName, contentTypeName, expiresName, retryName, timeName,
		cloudevent.SpecVersion, cloudevent.ID, cloudevent.Key:
		return true
	}
	return letter.IsRedrive(name)
}

// checkExtension refuses a header whose name begins with "ce-" but is not the name of an
// extension, as another program would read it.
func checkExtension(name string) error {
	switch {
	case isField(strings.ToLower(name)):
		return &FieldError{Field: "Headers[" + name + "]", Reason: "is reserved: it stores a field of the event"}
	case !cloudevent.IsExtension(strings.TrimPrefix(name, cloudevent.Prefix)):
		return &FieldError{Field: "Headers[" + name + "]", Reason: "is reserved: after ce- an extension of CloudEvents has only lower-case letters and digits"}
	}
	return nil
}
