package nats

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A message is stored as a NATS message that other programs can read, in the binary mode of
// the CloudEvents binding for NATS. The payload is unchanged. The ID and the attributes of
// CloudEvents are ce-… headers, and the key is ce-partitionkey. Other headers keep their
// names and values.
//
// A header gets the prefix "h-" if NATS or this package would give its name a meaning, or if
// NATS does not keep its name or value exactly. Each byte of it that NATS does not keep is
// then escaped as %XX, and a percent sign as %25.
//
// The values of ce-… headers are unchanged too, in a message with ce-specversion. If NATS
// does not keep one of them, all are escaped, and the header escapedMark says so. Without
// ce-specversion they are always escaped. Earlier versions of this package wrote all
// messages like this, and gave all other headers the prefix "h-".
const (
	idHeader        = "ce-id"
	keyHeader       = "ce-partitionkey"
	versionHeader   = "ce-specversion"
	timeHeader      = "ce-time"
	formatHeader    = "ce-datacontenttype"
	attributePrefix = "ce-"
	escapedPrefix   = "h-"
	reservedPrefix  = "nats-"
	escapedMark     = "eventbus-escaped"
	contentType     = "content-type" // written by other programs, and read as formatHeader
)

// anyCase are headers that other programs write in any letter case. They are read in lower
// case.
var anyCase = []string{"traceparent", "tracestate", "baggage"}

// onceHeader is the header for Message.Once. Within its duplicate window, a stream stores only
// one message with the same value of this header.
const onceHeader = jetstream.MsgIDHeader

const ownHeaders = 4 // most headers besides Message.Headers: mark, ID, key, once ID

// writeHeader appends the headers of m to h, and the header onceHeader with the value once,
// unless once is empty. It writes even an empty ID, because a message without one counts as
// another program's.
func writeHeader(h backend.Headers, m *backend.Message, once string) backend.Headers {
	escaped := true
	if _, ok := m.Headers.Lookup(versionHeader); ok {
		if escaped = !keepsAttributes(m); escaped {
			h = append(h, backend.Header{Name: escapedMark, Value: attributePrefix})
		}
	}
	attribute := func(name, value string) {
		if escaped {
			value = escape(value, isPlain)
		}
		h = append(h, backend.Header{Name: name, Value: value})
	}
	attribute(idHeader, m.ID)
	if m.Key != "" {
		attribute(keyHeader, m.Key)
	}
	for i := range m.Headers {
		switch name, value := m.Headers[i].Name, m.Headers[i].Value; {
		case isAttribute(name):
			attribute(name, value)
		case keepsName(name) && keepsValue(value):
			h = append(h, m.Headers[i])
		default:
			h = append(h, backend.Header{Name: escapedPrefix + escape(name, isToken), Value: escape(value, isPlain)})
		}
	}
	if once != "" {
		h = append(h, backend.Header{Name: onceHeader, Value: once})
	}
	return h
}

// isAttribute reports whether a header is an attribute of CloudEvents that is stored as ce-….
func isAttribute(name string) bool {
	rest, ok := strings.CutPrefix(name, attributePrefix)
	return ok && rest != "" && name != idHeader && name != keyHeader && strings.IndexFunc(rest, notAttribute) < 0
}

func notAttribute(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// keepsAttributes reports whether NATS keeps the ID, the key and all attribute values of m
// unchanged.
func keepsAttributes(m *backend.Message) bool {
	return keepsValue(m.ID) && keepsValue(m.Key) && !slices.ContainsFunc(m.Headers, func(h backend.Header) bool {
		return isAttribute(h.Name) && !keepsValue(h.Value)
	})
}

// keepsName reports whether a header can be stored under its own name.
func keepsName(name string) bool {
	for i := range len(name) {
		if !isToken(name, i) {
			return false
		}
	}
	folded, _ := fold(name)
	return name != "" && folded == name && name != escapedMark && !strings.HasPrefix(name, escapedPrefix) &&
		!hasPrefix(name, attributePrefix) && !hasPrefix(name, reservedPrefix) && !strings.EqualFold(name, "status") && !strings.EqualFold(name, "description")
}

// keepsValue reports whether NATS keeps a value exactly. NATS trims spaces.
func keepsValue(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] == 0x7f {
			return false
		}
	}
	return v == "" || v[0] != ' ' && v[len(v)-1] != ' ' && utf8.ValidString(v)
}

// hasPrefix reports whether s begins with prefix, in any letter case.
func hasPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// isPlain reports whether byte i of the value s is stored unescaped. A space is escaped only at
// the ends of a value.
func isPlain(s string, i int) bool {
	c := s[i]
	if c == ' ' {
		return i > 0 && i < len(s)-1
	}
	return c > ' ' && c != '%' && c != 0x7f && c < 0x80
}

// isToken reports whether byte i of the name s is stored unescaped.
func isToken(s string, i int) bool {
	c := s[i]
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// escape replaces each byte of s that is not plain by %XX.
func escape(s string, plain func(string, int) bool) string {
	at := 0
	for at < len(s) && plain(s, at) {
		at++
	}
	if at == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+8), s[:at]...)
	for i := at; i < len(s); i++ {
		if plain(s, i) {
			b = append(b, s[i])
		} else {
			b = fmt.Appendf(b, "%%%02X", s[i])
		}
	}
	return string(b)
}

// maxReservedHeaders bounds the memory reserved for the headers of one message. The bus writes
// fewer headers; another program may write more.
const maxReservedHeaders = 128

// otherHeaders estimates how many headers a message has besides the ID, to reserve memory for
// them. Nearly all messages have an ID.
func otherHeaders(h natsgo.Header) int { return min(max(len(h)-1, 0), maxReservedHeaders) }

// An origin says where and when a message was stored.
type origin interface {
	stored() (stream string, sequence uint64, at time.Time)
}

// readHeader reads the headers of a stored message into m. It skips the server's own headers,
// and takes the first value of a header with several.
//
// A message without ce-id comes from another program. Its ID is its Nats-Msg-Id, or else is
// made from its origin. A message of another program, or a CloudEvent, without a time gets the
// time at which it was stored.
func readHeader(mem *slab.Slab, m *backend.Message, h natsgo.Header, o origin) {
	r := headerReader{Message: m, header: h, escaped: isEscaped(h)}
	m.Headers = mem.Headers(otherHeaders(h))[:0]
	for name, values := range h {
		if len(values) > 0 {
			r.read(name, values[0])
		}
	}
	if r.folded {
		byName := func(a, b backend.Header) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
		}
		slices.SortFunc(m.Headers, byName)
		m.Headers = slices.CompactFunc(m.Headers, func(a, b backend.Header) bool { return a.Name == b.Name })
	}
	if !r.identified || !r.timed && !r.escaped {
		r.fillIn(o)
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
}

// isEscaped reports whether the values of ce-… headers are escaped.
func isEscaped(h natsgo.Header) bool {
	if h[escapedMark] != nil {
		return true
	}
	if h[idHeader] != nil { // as in every message of the bus
		return h[versionHeader] == nil
	}
	for name := range h {
		if strings.EqualFold(name, versionHeader) {
			return false
		}
	}
	return true
}

// A headerReader reads the headers of one message.
type headerReader struct {
	*backend.Message
	header  natsgo.Header
	escaped bool // the values of ce-… headers are escaped

	identified, timed bool // the message has an ID, a time
	folded            bool // the names of several headers may have become one
}

func (r *headerReader) read(name, value string) {
	if own, ok := strings.CutPrefix(name, escapedPrefix); ok && r.readOwn(own, value) {
		return
	}
	folded, exact := fold(name)
	if !exact {
		if r.header[folded] != nil {
			return
		}
		r.folded = true
	}
	if r.escaped && hasPrefix(name, attributePrefix) {
		if plain, err := url.PathUnescape(value); err == nil { // another program may not use escapes
			value = plain
		}
	}
	switch {
	case folded == idHeader:
		if !r.identified || value < r.ID {
			r.identified, r.ID = true, value
		}
	case folded == keyHeader:
		if r.Key == "" || value < r.Key {
			r.Key = value
		}
	case folded != escapedMark && !hasPrefix(folded, reservedPrefix):
		r.add(folded, value)
	}
}

// readOwn reads a header that writeHeader has stored with the prefix escapedPrefix. It returns
// false for a header that writeHeader would not have written.
func (r *headerReader) readOwn(rest, value string) bool {
	name, err := url.PathUnescape(rest)
	if err == nil {
		value, err = url.PathUnescape(value)
	}
	if err != nil || escape(name, isToken) != rest {
		r.folded = true
		return false
	}
	if r.header[name] == nil || !isReadAs(name) {
		r.add(name, value)
	}
	return true
}

func (r *headerReader) add(name, value string) {
	r.timed = r.timed || name == timeHeader
	r.Headers = append(r.Headers, backend.Header{Name: name, Value: value})
}

// fillIn gives another program's message an ID and a time.
func (r *headerReader) fillIn(o origin) {
	stream, sequence, at := o.stored()
	if !r.identified {
		r.ID = fmt.Sprintf("%s/%d/%d", stream, sequence, at.UnixNano())
		if ids := r.header[onceHeader]; len(ids) > 0 && ids[0] != "" {
			r.ID = ids[0]
		}
	}
	if !r.timed {
		r.add(timeHeader, at.UTC().Format(time.RFC3339Nano))
	}
}

// isReadAs reports whether a header stored as name, without a prefix, is read as name.
func isReadAs(name string) bool {
	folded, _ := fold(name)
	return folded == name && name != idHeader && name != keyHeader && name != escapedMark &&
		!strings.HasPrefix(name, escapedPrefix) && !hasPrefix(name, reservedPrefix)
}

// fold returns the name under which a stored header is read. exact reports whether it is the
// stored name.
func fold(name string) (folded string, exact bool) {
	folded = name
	if hasPrefix(name, attributePrefix) {
		folded = strings.ToLower(name)
	} else if strings.EqualFold(name, contentType) {
		folded = formatHeader
	} else if i := slices.IndexFunc(anyCase, func(one string) bool { return strings.EqualFold(name, one) }); i >= 0 {
		folded = anyCase[i]
	}
	return folded, folded == name
}
