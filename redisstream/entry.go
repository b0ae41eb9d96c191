package redisstream

import (
	"bytes"
	"errors"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A stream entry has one field. Its value is the message as a person can read it
// in redis-cli: a line for each attribute, an empty line, the payload.
//
//	:id: 019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10
//	:key: customer-7
//	ce-type: order.placed
//
//	{"order":"o-1","cents":1290}
//
// Names that begin with a colon are the message's own, the others are headers. A
// backslash, carriage return or line feed is written \\, \r, \n, in names a colon
// as \: and nothing at all as \0. Another format would have another field.
const field = "event"

const (
	idName  = ":id: "
	keyName = ":key: "
)

// appendHead appends the entry of m, but for the payload.
func appendHead(to []byte, m *backend.Message) []byte {
	if m.ID != "" {
		to = appendLine(to, idName, m.ID)
	}
	if m.Key != "" {
		to = appendLine(to, keyName, m.Key)
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		switch {
		case h.Name == "":
			to = append(to, `\0`...)
		case strings.IndexByte(h.Name, ':') < 0:
			to = appendEscaped(to, h.Name)
		default:
			for i, part := range strings.Split(h.Name, ":") {
				if i > 0 {
					to = append(to, `\:`...)
				}
				to = appendEscaped(to, part)
			}
		}
		to = appendLine(to, ": ", h.Value)
	}
	return append(to, '\n')
}

func appendLine(to []byte, name, value string) []byte {
	to = append(to, name...)
	to = appendEscaped(to, value)
	return append(to, '\n')
}

func appendEscaped(to []byte, s string) []byte {
	// Three searches of a short string cost less than one for any of three bytes.
	if strings.IndexByte(s, '\\') < 0 && strings.IndexByte(s, '\r') < 0 && strings.IndexByte(s, '\n') < 0 {
		return append(to, s...)
	}
	for i := range len(s) {
		switch s[i] {
		case '\\':
			to = append(to, `\\`...)
		case '\r':
			to = append(to, `\r`...)
		case '\n':
			to = append(to, `\n`...)
		default:
			to = append(to, s[i])
		}
	}
	return to
}

var errUnreadable = errors.New("not an entry of the bus")

// endOfHead returns where the empty line behind the attributes ends, or 0 if there
// is none.
func endOfHead(value []byte) int {
	if bytes.HasPrefix(value, []byte("\n")) {
		return 1
	}
	if at := bytes.Index(value, []byte("\n\n")); at >= 0 {
		return at + 2
	}
	return 0
}

// usual is how many headers a message has at most, nearly always.
const usual = 8

// readHead reads attribute lines into m, up to the empty line, and returns where
// that ends. So many messages, m the first of them, are still to be read.
func readHead(mem *slab.Slab, m *backend.Message, text string, left int) (end int, err error) {
	var room [usual]backend.Header
	headers, at, ok := room[:0], 0, true
	for {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			return 0, errUnreadable
		}
		line := text[at : at+n]
		at += n + 1
		if n == 0 {
			break
		}
		if line[0] == ':' {
			ok = ok && readOwn(m, line)
			continue
		}
		name, value, found := cutName(line)
		ok = ok && found
		headers = append(headers, backend.Header{Name: name, Value: value})
	}
	if strings.IndexByte(text[:at], '\\') >= 0 {
		headers, ok = readEscaped(m, text[:at-1], headers[:0])
	}
	if !ok {
		return 0, errUnreadable
	}
	m.Headers = mem.Alike(len(headers), left)
	copy(m.Headers, headers)
	return at, nil
}

// cutName is strings.Cut at ": ", which is nearly always where the first colon is.
func cutName(line string) (name, value string, ok bool) {
	if at := strings.IndexByte(line, ':'); at >= 0 && at+1 < len(line) && line[at+1] == ' ' {
		return line[:at], line[at+2:], true
	}
	return strings.Cut(line, ": ")
}

// readOwn reads a line that begins with a colon.
func readOwn(m *backend.Message, line string) bool {
	if value, ok := strings.CutPrefix(line, idName); ok {
		m.ID = value
		return true
	}
	if value, ok := strings.CutPrefix(line, keyName); ok {
		m.Key = value
		return true
	}
	return false
}

// readEscaped is readHead for lines in which something was escaped. It appends what
// is a header to headers.
func readEscaped(m *backend.Message, head string, headers []backend.Header) ([]backend.Header, bool) {
	m.ID, m.Key = "", ""
	for line := range strings.Lines(head) {
		line = strings.TrimSuffix(line, "\n")
		at := colon(line)
		if at < 0 || !strings.HasPrefix(line[at:], ": ") {
			return nil, false
		}
		name, ok := unescape(line[:at])
		value, ok2 := unescape(line[at+2:])
		switch {
		case !ok || !ok2:
			return nil, false
		case line[0] != ':':
			headers = append(headers, backend.Header{Name: name, Value: value})
		case !readOwn(m, name+": "+value):
			return nil, false
		}
	}
	return headers, true
}

// colon returns where the colon behind the name of a line is, or -1.
func colon(line string) int {
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\':
			i++
		case line[i] == ':' && i > 0:
			return i
		}
	}
	return -1
}

func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		if i++; i == len(s) {
			return "", false
		}
		switch s[i] {
		case '\\', ':':
			b = append(b, s[i])
		case 'r':
			b = append(b, '\r')
		case 'n':
			b = append(b, '\n')
		case '0':
		default:
			return "", false
		}
	}
	return string(b), true
}
