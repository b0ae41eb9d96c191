package nats

import (
	"fmt"
	"net/url"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A message is stored as a NATS message that other programs can read. The payload is
// unchanged. The ID and the attributes of CloudEvents are ce-… headers, and the key is
// ce-partitionkey. Other headers get the prefix "h-", so that the server gives none of
// them a meaning.
//
// NATS trims values and allows few bytes in names. A byte that NATS does not keep is
// escaped as %XX, and a percent sign as %25.
const (
	idHeader   = "ce-id"
	keyHeader  = "ce-partitionkey"
	attributes = "ce-"
	foreign    = "h-"
)

// onceHeader is the name of the header for Message.Once. Within its duplicate window, a
// stream stores only one message with the same value of this header.
const onceHeader = jetstream.MsgIDHeader

const ownHeaders = 3 // most headers of a message besides Message.Headers: ID, key, once ID

// writeHeader appends the headers of m to h. It also appends the header onceHeader with the
// value once, unless once is empty.
func writeHeader(h backend.Headers, m *backend.Message, once string) backend.Headers {
	if m.ID != "" {
		h = append(h, backend.Header{Name: idHeader, Value: escape(m.ID, isPlain)})
	}
	if m.Key != "" {
		h = append(h, backend.Header{Name: keyHeader, Value: escape(m.Key, isPlain)})
	}
	for i := range m.Headers {
		h = append(h, backend.Header{Name: headerName(m.Headers[i].Name), Value: escape(m.Headers[i].Value, isPlain)})
	}
	if once != "" {
		h = append(h, backend.Header{Name: onceHeader, Value: once})
	}
	return h
}

// headerName returns the stored name of a header. The name of an attribute of CloudEvents
// is unchanged.
func headerName(name string) string {
	if isAttribute(name) {
		return name
	}
	return foreign + escape(name, isToken)
}

func isAttribute(name string) bool {
	rest, ok := strings.CutPrefix(name, attributes)
	return ok && rest != "" && name != idHeader && name != keyHeader && strings.IndexFunc(rest, notAttribute) < 0
}

func notAttribute(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// many is the most headers of one message for which memory is reserved. Each message of the
// bus has fewer headers. A message of another program may have more.
const many = 128

// readHeader reads the headers of a NATS message into m. It skips headers of the server and
// of other programs. If a header has several values, it takes the first. It also skips a
// name that is escaped in another way than writeHeader does it.
func readHeader(mem *slab.Slab, m *backend.Message, h natsgo.Header) error {
	m.Headers = mem.Headers(otherHeaders(h))[:0]
	for name, values := range h {
		own, isForeign := strings.CutPrefix(name, foreign)
		if len(values) == 0 || !isForeign && !strings.HasPrefix(name, attributes) {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err == nil && isForeign {
			own, err = url.PathUnescape(own)
		}
		if err != nil {
			return fmt.Errorf("header %q with the value %q is not escaped as it should be", name, values[0])
		}
		switch {
		case name == idHeader:
			m.ID = value
		case name == keyHeader:
			m.Key = value
		case !isForeign || escape(own, isToken) == name[len(foreign):] && (h[own] == nil || !isAttribute(own)):
			m.Headers = append(m.Headers, backend.Header{Name: own, Value: value})
		}
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	return nil
}

// otherHeaders estimates the number of headers without the ID, to reserve memory for them.
// Nearly all messages have an ID.
func otherHeaders(h natsgo.Header) int { return min(max(len(h)-1, 0), many) }

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
