package nats

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
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
	idHeader      = "ce-id"
	keyHeader     = "ce-partitionkey"
	versionHeader = "ce-specversion"
	timeHeader    = "ce-time"
	formatHeader  = "ce-datacontenttype"
	attributes    = "ce-"
	foreign       = "h-"
	reserved      = "nats-"
	escapedMark   = "eventbus-escaped"
	contentType   = "content-type" // of other programs, is read as formatHeader
)

// anyCase are names that other programs write in any letter case. They are read in lower
// case.
var anyCase = []string{"traceparent", "tracestate", "baggage"}

// onceHeader is the name of the header for Message.Once. Within its duplicate window, a
// stream stores only one message with the same value of this header.
const onceHeader = jetstream.MsgIDHeader

const ownHeaders = 4 // most headers of a message besides Message.Headers: mark, ID, key, once ID

// writeHeader appends the headers of m to h. It also appends the header onceHeader with the
// value once, unless once is empty. It stores an empty ID too, because a message without an
// ID counts as one of another program.
func writeHeader(h backend.Headers, m *backend.Message, once string) backend.Headers {
	escaped := true
	if _, ok := m.Headers.Lookup(versionHeader); ok {
		if escaped = !keepsAttributes(m); escaped {
			h = append(h, backend.Header{Name: escapedMark, Value: attributes})
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
			h = append(h, backend.Header{Name: foreign + escape(name, isToken), Value: escape(value, isPlain)})
		}
	}
	if once != "" {
		h = append(h, backend.Header{Name: onceHeader, Value: once})
	}
	return h
}

func isAttribute(name string) bool {
	rest, ok := strings.CutPrefix(name, attributes)
	return ok && rest != "" && name != idHeader && name != keyHeader && strings.IndexFunc(rest, notAttribute) < 0
}

func notAttribute(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// keepsAttributes reports whether NATS keeps the ID, the key and the values of all
// attributes of m.
func keepsAttributes(m *backend.Message) bool {
	return keepsValue(m.ID) && keepsValue(m.Key) && !slices.ContainsFunc(m.Headers, func(h backend.Header) bool {
		return isAttribute(h.Name) && !keepsValue(h.Value)
	})
}

// keepsName reports whether a header of this name can be stored under its own name.
func keepsName(name string) bool {
	for i := range len(name) {
		if !isToken(name, i) {
			return false
		}
	}
	folded, _ := fold(name)
	return name != "" && folded == name && name != escapedMark && !strings.HasPrefix(name, foreign) &&
		!hasPrefix(name, attributes) && !hasPrefix(name, reserved) && !strings.EqualFold(name, "status") && !strings.EqualFold(name, "description")
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

// isPlain reports whether byte i of the value s is stored unescaped. A space is escaped
// only at the ends of a value.
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
