package eventbus

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
	"github.com/seed41896749/eventbus/internal/letter"
)

// An Event is something that happened. Its attributes have the names and the meaning of
// CloudEvents. All fields are optional.
type Event struct {
	ID          string // at most 512 bytes; if empty, Publish stores the event with a new UUIDv7
	Type        string // the kind of event, such as "order.placed"; CloudEvents require it, so set it if other programs read the topic
	Source      string // the program that publishes the event, as a URI reference; if empty, Publish stores Options.Service
	Subject     string // what the event is about, such as an order number
	ContentType string // the format of Payload, such as "application/json"

	// Key names a sequence of events whose order matters, such as a customer number. Events of
	// one key in one topic are stored in the order in which they are published. By default each
	// member of a group handles the events of a key one after another; see Order. Different
	// members do not wait for each other, unless the topic has partitions; see
	// TopicOptions.Partitions. At most 512 bytes. Empty means no order.
	Key string

	Time time.Time // when the event happened; if zero, Publish stores the current time

	// TTL is how long after Time the event may reach a handler. Once it has expired, no handler
	// gets it: see SubscribeOptions.DeadLetterExpired. Dead letters do not expire, and neither do
	// events that package deadletter has redriven. Zero means that the event never
	// expires.
	TTL time.Duration

	// Retry changes the retries of this event, in every group. It is stored with the event.
	Retry *RetryRule

	// Once makes Publish store only one event with this text in the topic while the backend
	// remembers the text (Limits.OnceWindow), whatever the IDs of the events. It is not stored
	// with the event. At most 512 bytes. If Once is empty, Options.Dedup decides.
	Once string

	// AtPosition stores the event at this position, for example to copy another stream. It must
	// be greater than every earlier position of the topic; otherwise the event's error matches
	// ErrRefused. It works only on a backend with Limits.Positions, such as Redis, where it is
	// the ID of a stream entry. If it is empty, the backend chooses.
	AtPosition string

	Headers Headers // names and values of your choice; see MaxHeaders
	Payload []byte

	// Position says where the event is stored in its topic. The bus sets it in each Delivery;
	// Publish ignores it and returns positions in Receipt.Position. Positions compare as strings:
	// a later event of the topic has a greater one.
	Position string
}

// Headers are names and values that travel with an event. A name is a token as in HTTP, but
// case-sensitive, and occurs once. A value is UTF-8 without control characters.
//
// Publish refuses names that begin with "eventbus-" or "nats-", in upper or lower case, because
// they are reserved. The headers of a dead letter that begin with "eventbus-dead-" are the fields
// of DeadLetter.
//
// A name that consists of "ce-" and lower-case letters or digits, such as "ce-dataschema" or
// "ce-traceparent", is a CloudEvents extension. A handler gets the extensions that other programs
// have set, and may publish them again. Publish refuses any other name that begins with "ce-",
// including names that store a field of Event, such as "ce-type".
type Headers = backend.Headers

// A Header is a name and its value.
type Header = backend.Header

// Limits of one event. Every backend can store a message of 1 MiB; 64 KiB of it are reserved for
// headers, including those that a dead letter adds.
const (
	MaxPayload     = 1<<20 - 64<<10 // bytes; see Options.MaxPayload
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10 // names and values
)

const (
	headerRoom = 64 << 10 // bytes of a message that are reserved for headers
	maxText    = 512      // bytes of each of ID, Key, Type, Source, Subject and ContentType
)

// check returns the error with which Publish refuses e, or nil. i is the index of e in the call,
// and limit is the largest payload in bytes.
func (e *Event) check(i, limit int) error {
	if e == nil {
		return &FieldError{Field: fmt.Sprintf("events[%d]", i), Reason: "is nil"}
	}
	err := e.checkFields(limit)
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*FieldError](err); ok {
		f.Field = fmt.Sprintf("events[%d].%s", i, f.Field)
	}
	return err
}

func (e *Event) checkFields(limit int) error {
	if len(e.Payload) > limit {
		return tooLarge("Payload", len(e.Payload), limit, "bytes")
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

// checkTime refuses a time that RFC 3339 cannot express.
func (e *Event) checkTime() error {
	const year0, year10000 = -62167219200, 253402300800 // in seconds since 1970
	if e.Time.Unix() < year0 || e.Time.Add(e.TTL).Unix() >= year10000 {
		return &FieldError{Field: "Time", Reason: "plus TTL is outside the years 0 to 9999"}
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

func tooLarge(field string, n, limit int, unit string) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf("has %d %s, more than %d", n, unit, limit), Err: ErrTooLarge}
}

// checkText refuses a text that some backend could not keep unchanged as a header value. It scans
// for ASCII first, because nearly all texts are ASCII.
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
				return &FieldError{Field: "Headers[" + h.Name + "]", Reason: "occurs twice"}
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

var reservedPrefixes = [...]string{letter.ReservedPrefix, "nats-"}

// checkExtension refuses a name that begins with "ce-" unless other programs would read it as a
// CloudEvents extension.
func checkExtension(name string) error {
	switch {
	case isField(strings.ToLower(name)):
		return &FieldError{Field: "Headers[" + name + "]", Reason: "is reserved: it stores a field of the event"}
	case !cloudevent.IsExtension(strings.TrimPrefix(name, cloudevent.Prefix)):
		return &FieldError{Field: "Headers[" + name + "]", Reason: "is reserved: after ce- an extension of CloudEvents has only lower-case letters and digits"}
	}
	return nil
}

// isTokenByte reports whether c may be part of an HTTP token (RFC 9110, 5.6.2).
func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
