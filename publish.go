package eventbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
)

// Limits of one event. Every backend can store a message of 1 MiB. 64 KiB of it are
// reserved for headers, including the headers of a dead letter.
const (
	MaxPayload     = 1<<20 - 64<<10 // bytes; see Options.MaxPayload
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10 // names and values

	headerRoom = 64 << 10 // bytes of a message that are reserved for headers

	maxText = 512 // bytes of ID, Key, Type, Source, Subject, ContentType each
)

// A PublishMiddleware wraps a [Publisher]. The bus passes copies of the program's events to
// it, with ID, Source and Time set; none is nil. A middleware may change these copies, but
// not the bytes of Payload or the fields of Retry, because the program's events share them.
// A middleware passes on its context, or a child of it, because [Bus.PublishReceipts] finds
// its receipts by the context.
type PublishMiddleware func(Publisher) Publisher

// Publish stores events in topic, in the order given, and returns when all are
// stored as durably as the backend can. Concurrent calls share round trips.
//
// Publish checks all events before it stores any. If a field is wrong, the error is a
// *FieldError that names the field. Any other failure is a *PublishError with an entry for
// each event. If ctx ends before an event was sent, the event is certainly not stored. If
// ctx ends later, the event's error matches both ErrUnknownOutcome and ctx.Err().
//
// If the backend cannot be reached, Publish tries again until ctx ends or
// Options.PublishTimeout has passed. It repeats only events that are certainly not stored,
// and with Options.Dedup also events of unknown outcome. It stops if another try could
// change the order of a key.
//
// Publish stores the events of a topic and key in the order of the calls of one goroutine,
// also if an earlier call gave up while its events were on the way. Then a later call of the
// key waits until the earlier write has ended; other calls do not.
//
// A call waits at most 100 ms for a call to the backend in which it has no part and which does
// not return, because a topic, a connection or a shard hangs. A topic that hangs is then
// written apart from others, by at most twice Limits.Publishers writes, until the backend
// answers. This holds while no more than 16 times Limits.Publishers writes hang. Calls that
// were joined to a write before it hung share its outcome. All calls count for MaxPending.
//
// Publish neither changes nor retains the events. An event without ID, Source or Time is
// stored with a new ID, Options.Service and the present time; [Bus.PublishReceipts] returns
// them. So the same *Event may be published again, also by concurrent calls, and is another
// event each time unless it has an ID.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*Event) error {
	if b.publish == nil {
		return b.store(ctx, topic, events, nil, when{})
	}
	return b.publishCopies(ctx, topic, events, nil, when{})
}

// store does the work of Publish, without the middleware. If receipts is not nil, it has one
// element for each event, which store sets.
func (b *Bus) store(ctx context.Context, topic string, events []*Event, receipts []Receipt, w when) error {
	s := encoders.Get().(*encoder)
	if err := s.check(b, topic, events, w); err != nil || len(events) == 0 {
		encoders.Put(s)
		return err
	}
	s.encode(b, topic, events, receipts)
	var err error
	switch {
	case w.entry != nil:
		err = w.entry(ctx, s.pointers[0])
	case !w.due.IsZero():
		s.schedule(w.due, events)
		err = b.engine.Publish(ctx, s.pointers)
	default:
		err = b.engine.Publish(ctx, s.pointers)
	}
	for i := range receipts {
		if m := &s.messages[i]; backend.ErrorAt(err, i) == nil {
			receipts[i].Position, receipts[i].Duplicate = m.Position, m.Duplicate
		}
	}
	if err == nil { // after an error a write to the broker may still read the messages of s
		s.recycle()
		return nil
	}
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = backend.ErrorAt(err, i)
	}
	return &PublishError{Topic: topic, Errors: errs}
}

// An encoder turns the events of one call of Publish into messages. Later calls reuse the
// memory of the encoder, but not its texts, because programs keep the texts.
type encoder struct {
	messages []backend.Message
	pointers []*backend.Message
	headers  Headers
	texts    strings.Builder
	ids      idSource
	second   second
	topic    string // the topic of the last call, whose name is known to be valid
}

var encoders = sync.Pool{New: func() any { return &encoder{} }}

// check returns an error that says why Publish refuses to publish events to topic, or nil.
func (s *encoder) check(b *Bus, topic string, events []*Event, w when) error {
	if topic != s.topic || topic == "" {
		if err := checkTopic(topic); err != nil {
			return err
		}
		s.topic = topic
	}
	for i, e := range events {
		if err := e.check(i, b.options.MaxPayload); err != nil {
			return err
		}
		if e.Once != "" && b.engine.Limits().OnceWindow == 0 {
			return &FieldError{Field: fmt.Sprintf("events[%d].Once", i), Reason: "is set, but the backend does not remember it"}
		}
		if e.AtPosition == "" {
			continue
		}
		if !b.engine.Limits().Positions {
			return &FieldError{Field: fmt.Sprintf("events[%d].AtPosition", i), Reason: "is set, but the backend chooses the position", Err: errors.ErrUnsupported}
		}
		if w.entry != nil || !w.due.IsZero() {
			return &FieldError{Field: fmt.Sprintf("events[%d].AtPosition", i), Reason: "is set, but a scheduled event has no position yet"}
		}
	}
	return nil
}

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

// recycle keeps s for a later call. It clears pointers, so that s keeps no events in
// memory. After a call with a single event it clears only the payload. The other texts of
// one event have 20 KB at most, and each cleared pointer costs time.
func (s *encoder) recycle() {
	if len(s.messages) > 1 {
		clear(s.messages)
		clear(s.headers)
	} else {
		s.messages[0].Payload = nil
	}
	encoders.Put(s)
}

func checkTopic(topic string) error {
	if err := backend.CheckName(topic); err != nil {
		return &FieldError{Field: "topic", Reason: err.Error()}
	}
	if partition.Reserved(topic) {
		return &FieldError{Field: "topic", Reason: topic + " is a name that the bus uses for the partitions of a topic"}
	}
	return nil
}

// check returns an error that says why Publish refuses e, or nil. i is the index of e in
// the call, and most the most bytes of its payload.
func (e *Event) check(i, most int) error {
	if e == nil {
		return &FieldError{Field: fmt.Sprintf("events[%d]", i), Reason: "is nil"}
	}
	err := e.checkFields(most)
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*FieldError](err); ok {
		f.Field = fmt.Sprintf("events[%d].%s", i, f.Field)
	}
	return err
}

func (e *Event) checkFields(most int) error {
	if len(e.Payload) > most {
		return tooLarge("Payload", len(e.Payload), most, "bytes")
	}
	return cmp.Or(
		checkAttribute("ID", e.ID),
		checkAttribute("Key", e.Key),
		checkAttribute("Type", e.Type),
		checkAttribute("Source", e.Source),
		checkAttribute("Subject", e.Subject),
		checkAttribute("ContentType", e.ContentType),
		checkAttribute("Once", e.Once),
		checkAttribute("AtPosition", e.AtPosition),
		checkHeaders(e.Headers),
		e.checkTime(),
		e.checkTTL(),
		e.Retry.checkOwn(),
	)
}

// checkTime refuses a time that RFC 3339 has no text for.
func (e *Event) checkTime() error {
	const year0, year10000 = -62167219200, 253402300800 // in seconds since 1970
	if e.Time.Unix() < year0 || e.Time.Add(e.TTL).Unix() >= year10000 {
		return &FieldError{Field: "Time", Reason: "is, with TTL, not in the years 0 to 9999"}
	}
	return nil
}

func (e *Event) checkTTL() error {
	if e.TTL < 0 {
		return &FieldError{Field: "TTL", Reason: "is negative"}
	}
	return nil
}

func checkAttribute(name, value string) error {
	if value == "" { // like most attributes
		return nil
	}
	return checkLength(name, value)
}

func checkLength(name, value string) error {
	if len(value) > maxText {
		return tooLarge(name, len(value), maxText, "bytes")
	}
	return checkText(name, value)
}

func tooLarge(field string, n, most int, unit string) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf("has %d %s, more than %d", n, unit, most), Err: ErrTooLarge}
}

// checkText refuses a text that some backend could not keep unchanged as a header value.
func checkText(field, s string) error {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == 0x7f || c >= utf8.RuneSelf {
			return checkUnicode(field, s)
		}
	}
	return nil
}

func checkUnicode(field, s string) error {
	if !utf8.ValidString(s) {
		return &FieldError{Field: field, Reason: "is not valid UTF-8"}
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return &FieldError{Field: field, Reason: fmt.Sprintf("has a control character at byte %d", i)}
	}
	return nil
}

func checkHeaders(hs Headers) error {
	if len(hs) > MaxHeaders {
		return tooLarge("Headers", len(hs), MaxHeaders, "entries")
	}
	for i, h := range hs {
		if err := checkHeaderName(h.Name); err != nil {
			return err
		}
		for _, other := range hs[:i] {
			if other.Name == h.Name {
				return &FieldError{Field: "Headers[" + h.Name + "]", Reason: "is there twice"}
			}
		}
		if err := checkText("Headers["+h.Name+"]", h.Value); err != nil {
			return err
		}
	}
	if n := hs.Size(); n > MaxHeaderBytes {
		return tooLarge("Headers", n, MaxHeaderBytes, "bytes")
	}
	return nil
}

var reservedPrefixes = [...]string{letter.ReservedPrefix, "nats-"}

func checkHeaderName(name string) error {
	if name == "" {
		return &FieldError{Field: "Headers", Reason: "has an empty name"}
	}
	for _, c := range []byte(name) {
		if !isTokenByte(c) {
			return &FieldError{Field: "Headers", Reason: fmt.Sprintf("has the name %q, which is not a token as in HTTP", name)}
		}
	}
	if cloudevent.HasPrefix(name) {
		return checkExtension(name)
	}
	for _, p := range reservedPrefixes {
		if len(name) >= len(p) && strings.EqualFold(name[:len(p)], p) {
			return &FieldError{Field: "Headers[" + name + "]", Reason: "is reserved: names must not begin with " + p}
		}
	}
	return nil
}

// isTokenByte reports whether c may be in an HTTP token (RFC 9110, 5.6.2).
func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
