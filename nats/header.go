package nats

import (
	"fmt"
	"strconv"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A message is a NATS message that other programs can read: the payload as it is,
// the ID and the attributes of CloudEvents as ce-… headers, the key as
// ce-partitionkey. Headers of the program have the prefix "h-", so that none of
// them means anything to the server.
//
// NATS trims values and does not keep every byte in names. What would not come
// through is written %XX, and a percent sign is %25.
const (
	idHeader   = "ce-id"
	keyHeader  = "ce-partitionkey"
	attributes = "ce-"
	foreign    = "h-"
)

// onceHeader is the ID of a message that the server stores only once.
const onceHeader = jetstream.MsgIDHeader

const ownHeaders = 3 // of a message, at most: its ID, its key, and the ID to be stored once

// writeHeader appends the headers of m, with an ID to be stored once if there is one.
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

// headerName is how a name is written: attributes as they are.
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

// many is how many headers no message of the bus has. Another program's may.
const many = 128

// readHeader reads the headers of a NATS message into m. Others than ours mean
// something to the server, or to another program. Of several values of one name the
// first counts; a name that is written in another way than ours is not one of ours.
func readHeader(mem *slab.Slab, m *backend.Message, h natsgo.Header) error {
	m.Headers = mem.Headers(otherHeaders(h))[:0]
	for name, values := range h {
		own, isForeign := strings.CutPrefix(name, foreign)
		if len(values) == 0 || !isForeign && !strings.HasPrefix(name, attributes) {
			continue
		}
		if isForeign {
			var ok bool
			if own, ok = unescape(own); !ok {
				return fmt.Errorf("header name %q is not escaped as it should be", name)
			}
		}
		value, ok := unescape(values[0])
		if !ok {
			return fmt.Errorf("header %q: %q is not escaped as it should be", name, values[0])
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

// otherHeaders is for how many headers there is to be memory before they are read:
// not for the ID, which nearly all messages have.
func otherHeaders(h natsgo.Header) int { return min(max(len(h)-1, 0), many) }

// isPlain reports whether a byte of a value goes as it is. Spaces do, but at
// the ends.
func isPlain(s string, i int) bool {
	c := s[i]
	if c == ' ' {
		return i > 0 && i < len(s)-1
	}
	return c > ' ' && c != '%' && c != 0x7f && c < 0x80
}

// isToken reports whether a byte of a name goes as it is.
func isToken(s string, i int) bool {
	c := s[i]
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

const hexDigits = "0123456789ABCDEF"

func escape(s string, plain func(string, int) bool) string {
	odd := 0
	for i := range len(s) {
		if !plain(s, i) {
			odd++
		}
	}
	if odd == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*odd)
	for i := range len(s) {
		if plain(s, i) {
			b = append(b, s[i])
		} else {
			b = append(b, '%', hexDigits[s[i]>>4], hexDigits[s[i]&15])
		}
	}
	return string(b)
}

func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b), true
}
