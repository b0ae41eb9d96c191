package eventbus

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
	"github.com/seed41896749/eventbus/internal/letter"
)

// MessageOf returns the message that stores e in topic. It is for programs that keep events
// elsewhere before publishing them, such as an outbox, which stores the fields of the message;
// [EventOf] is the way back.
//
// MessageOf checks e as Publish does and returns a *FieldError if it refuses e. If e has no ID or
// no Time, the message gets a new ID or the current time. The message shares the payload of e.
func MessageOf(topic string, e *Event) (*backend.Message, error) {
	if e != nil && e.AtPosition != "" {
		return nil, &FieldError{Field: "AtPosition", Reason: "is set, but only Publish stores an event at a position"}
	}
	return messageOf(topic, e, MaxPayload)
}

// EventOf returns the event that a message stores. Use it to read a topic without a group, with
// [backend.Read]. The event shares the payload of m.
func EventOf(m *backend.Message) Event {
	var e Event
	stored := *m
	letter.Restore(&stored)
	e.decode(&stored)
	return e
}

func messageOf(topic string, e *Event, limit int) (*backend.Message, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	if e == nil {
		return nil, &FieldError{Field: "event", Reason: "is nil"}
	}
	if err := e.checkFields(limit); err != nil {
		return nil, err
	}
	var s encoder
	filled, m := *e, new(backend.Message)
	s.fill(&filled, "", time.Now())
	filled.encode(m, topic, s.timeText(filled.Time), make(Headers, 0, len(e.Headers)+attributes))
	m.Once, m.OnceKey = e.Once != "", e.Once
	return m, nil
}

// The message headers that store the attributes of an event.
const (
	typeName        = cloudevent.Type
	sourceName      = cloudevent.Source
	subjectName     = cloudevent.Subject
	timeName        = cloudevent.Time
	contentTypeName = cloudevent.ContentType
	expiresName     = letter.Expiry
	retryName       = letter.Retry

	attributes = 8 // the most headers that encode adds
)

// encode sets every field of m except Once and OnceKey, so that m stores e. stamp is e.Time as
// text. The headers of m are appended to headers, which must have enough capacity: messages encoded
// earlier refer to it.
func (e *Event) encode(m *backend.Message, topic, stamp string, headers Headers) Headers {
	from := len(headers)
	headers = append(headers, Header{Name: cloudevent.SpecVersion, Value: cloudevent.Version})
	headers = append(headers, e.Headers...)
	set := func(name, value string) {
		if value != "" {
			headers = append(headers, Header{Name: name, Value: value})
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
	m.Headers = headers[from:len(headers):len(headers)]
	m.Position, m.Duplicate, m.AtPosition = "", false, e.AtPosition
	return headers
}

// decode sets e to the event that m stores. e shares the payload of m. The headers of m that
// store no field become the headers of e. The caller has called [letter.Restore] for m.
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

// setField sets the field of e that h stores, and reports whether h stores a field.
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
		e.TTL = 1 // not zero; decode computes it once Time is known
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

// isField reports whether a header stores a field of the event or a mark of the bus. Handlers see
// all other headers.
func isField(name string) bool {
	switch name {
	case typeName, sourceName, subjectName, contentTypeName, expiresName, retryName, timeName,
		cloudevent.SpecVersion, cloudevent.ID, cloudevent.Key:
		return true
	}
	return letter.IsRedrive(name)
}

// expiry returns when the event of m expires, or zero if it never does.
func expiry(m *backend.Message) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, m.Headers.Get(expiresName))
	return t
}

// ttl returns the TTL of the event that m stores, where at is the Time of the event.
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

// An encoder turns the events of one Publish call into messages. Later calls reuse its memory,
// except for its texts, because programs may keep those.
type encoder struct {
	messages []backend.Message
	pointers []*backend.Message
	headers  Headers
	texts    strings.Builder
	ids      idSource
	second   secondCache
	topic    string // the last topic, already checked: most programs publish to the same one again
}

var encoders = sync.Pool{New: func() any { return &encoder{} }}

func (s *encoder) encode(b *Bus, topic string, events []*Event, receipts []Receipt) {
	headers := 0
	for _, e := range events {
		headers += len(e.Headers) + attributes
	}
	s.messages = slices.Grow(s.messages[:0], len(events))[:len(events)]
	s.pointers = s.pointers[:0]
	if cap(s.headers) < headers {
		s.headers = make(Headers, 0, headers)
	}
	s.headers = s.headers[:0]
	now := time.Now()
	for i, e := range events {
		filled := *e
		s.fill(&filled, b.options.Service, now)
		s.headers = filled.encode(&s.messages[i], topic, s.timeText(filled.Time), s.headers)
		s.messages[i].Once, s.messages[i].OnceKey = b.options.Dedup || e.Once != "", e.Once
		s.pointers = append(s.pointers, &s.messages[i])
		if receipts != nil {
			receipts[i] = Receipt{ID: filled.ID, Time: filled.Time}
		}
	}
}

// recycle makes s available for later calls. It clears pointers so that the pool keeps no events
// alive. After a call with a single event it clears only the payload: the other texts of one
// event take 20 KB at most, and clearing each pointer costs time.
func (s *encoder) recycle() {
	if len(s.messages) > 1 {
		clear(s.messages)
		clear(s.headers)
	} else {
		s.messages[0].Payload = nil
	}
	encoders.Put(s)
}

// fill sets ID, Source and Time of e if they are empty.
func (s *encoder) fill(e *Event, service string, now time.Time) {
	if e.ID == "" {
		var text [uuidLen]byte
		encodeID(text[:], s.ids.next(now))
		e.ID = s.text(text[:])
	}
	if e.Source == "" {
		e.Source = service
	}
	if e.Time.IsZero() {
		e.Time = now.Round(0)
	}
}

// timeText returns t as RFC 3339 text.
func (s *encoder) timeText(t time.Time) string {
	var text [len(time.RFC3339Nano)]byte
	return s.text(s.second.appendTime(text[:0], t))
}

// text returns the bytes of p as a string. Several such strings share one allocation.
func (s *encoder) text(p []byte) string {
	if s.texts.Cap()-s.texts.Len() < len(p) {
		s.texts = strings.Builder{}
		s.texts.Grow(max(textSize, len(p)))
	}
	s.texts.Write(p)
	all := s.texts.String()
	return all[len(all)-len(p):]
}

const (
	uuidLen  = 36
	textSize = 512 // bytes of an allocation shared by several texts; a program that keeps one ID keeps all of them alive
)

// A secondCache keeps the text of the second formatted last, because events published together
// usually have times within the same second.
type secondCache struct {
	unix int64
	text [len(time.DateTime)]byte
}

// appendTime appends t in UTC as RFC 3339, without trailing zeros in the fraction.
func (s *secondCache) appendTime(to []byte, t time.Time) []byte {
	if unix := t.Unix(); unix != s.unix || s.text[0] == 0 {
		text := t.UTC().AppendFormat(nil, rfc3339Second)
		if len(text) != len(s.text) { // a year beyond 9999 or before 0
			return t.UTC().AppendFormat(to, time.RFC3339Nano)
		}
		s.unix = unix
		copy(s.text[:], text)
	}
	to = append(to, s.text[:]...)
	if nanos := t.Nanosecond(); nanos > 0 {
		digits, n := [10]byte{'.'}, 10
		for i := 9; i > 0; i-- {
			digits[i] = '0' + byte(nanos%10)
			nanos /= 10
		}
		for digits[n-1] == '0' {
			n--
		}
		to = append(to, digits[:n]...)
	}
	return append(to, 'Z')
}

const rfc3339Second = "2006-01-02T15:04:05"

// encodeID writes the canonical text of id, 36 characters, to the slice to.
func encodeID(to []byte, id uuid.UUID) {
	const digits = "0123456789abcdef"
	_ = to[uuidLen-1]
	for i, at := range [...]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		to[at], to[at+1] = digits[id[i]>>4], digits[id[i]&15]
	}
	to[8], to[13], to[18], to[23] = '-', '-', '-', '-'
}

// An idSource makes UUIDv7s like package uuid, but without an allocation for each: it reads the
// random bytes for many IDs at once. It is not safe for concurrent use.
type idSource struct {
	random [512]byte
	left   int // unused bytes at the end of random
}

// lastID is the time in the newest ID of this process, in 1/4096 ms since 1970.
var lastID atomic.Int64

// next returns an ID for the time now. Within a process, each ID is greater than the previous one.
func (s *idSource) next(now time.Time) (id uuid.UUID) {
	if s.left == 0 {
		_, _ = rand.Read(s.random[:]) // it never fails
		s.left = len(s.random)
	}
	s.left -= copy(id[8:], s.random[len(s.random)-s.left:])
	at := stampID(now)
	binary.BigEndian.PutUint64(id[:], uint64(at>>12)<<16|7<<12|uint64(at&0xfff)) // milliseconds, version, the rest
	id[8] = id[8]&0x3f | 0x80                                                    // variant
	return id
}

// stampID returns the time for a new ID, in 1/4096 ms since 1970: now, or just after lastID if
// that is later. The result becomes lastID.
func stampID(now time.Time) int64 {
	nanos := now.UnixNano()
	ms := nanos / int64(time.Millisecond)
	at := ms<<12 + (nanos-ms*int64(time.Millisecond))>>8 // the second term is less than 4096, as in package uuid
	for {
		last := lastID.Load()
		if at <= last {
			at = last + 1
		}
		if lastID.CompareAndSwap(last, at) {
			return at
		}
	}
}
