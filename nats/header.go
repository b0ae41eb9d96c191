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

// A headerWriter writes headers: as text, or, if it has one, into a map of the
// client library, whose old ones it removes.
type headerWriter struct {
	text   []byte
	header natsgo.Header
	values []string // what the map's values are slices of
}

// onceHeader is the ID of a message that the server stores only once.
const onceHeader = jetstream.MsgIDHeader

// write writes the headers of m.
func (w *headerWriter) write(m *backend.Message) {
	if w.header != nil {
		clear(w.header)
		if room := len(m.Headers) + 4; cap(w.values) < room { // so that it does not move
			w.values = make([]string, 0, 2*room)
		}
	}
	if m.ID != "" {
		w.set(idHeader, escape(m.ID, isPlain))
	}
	if m.Key != "" {
		w.set(keyHeader, escape(m.Key, isPlain))
	}
	for i := range m.Headers {
		w.set(headerName(m.Headers[i].Name), escape(m.Headers[i].Value, isPlain))
	}
}

func (w *headerWriter) set(name, value string) {
	if w.header == nil {
		w.text = append(w.text, name...)
		w.text = append(w.text, ": "...)
		w.text = append(w.text, value...)
		w.text = append(w.text, "\r\n"...)
		return
	}
	n := len(w.values)
	w.values = append(w.values, value)
	w.header[name] = w.values[n : n+1 : n+1]
}

// headerName is how a name is written: attributes as they are.
func headerName(name string) string {
	if rest, ok := strings.CutPrefix(name, attributes); ok && rest != "" && name != idHeader && name != keyHeader && strings.IndexFunc(rest, notAttribute) < 0 {
		return name
	}
	return foreign + escape(name, isToken)
}

func notAttribute(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// A headerReader reads the headers of a NATS message into m. Those that are not
// ours mean something to the server, or to another program. Of two with the same
// name the first counts.
type headerReader struct {
	m      *backend.Message
	hasID  bool
	hasKey bool
	names  map[string]struct{} // of its headers, once they are many
}

// many is how many headers no message of the bus has. Another program's may: for
// those beyond it there is no memory before they are read, and what is here is not
// looked through for each.
const many = 128

// readHeader reads headers that the client library has read.
func readHeader(mem *slab.Slab, m *backend.Message, h natsgo.Header) error {
	r := headerReader{m: m}
	m.Headers = mem.Headers(otherHeaders(len(h)))[:0]
	for name, values := range h {
		if len(values) > 0 {
			if err := r.read(name, values[0]); err != nil {
				return err
			}
		}
	}
	r.end()
	return nil
}

// readText reads headers as they are on the wire. Where the first line is not
// theirs, another is none, or the end is missing, there are no headers, as for the
// client library.
func readText(mem *slab.Slab, m *backend.Message, text string) error {
	first, rest, _ := strings.Cut(text, "\n")
	if !beginsHeaders(strings.TrimSuffix(first, "\r")) {
		return nil
	}
	r := headerReader{m: m}
	m.Headers = mem.Headers(otherHeaders(linesOf(text)))[:0]
	var failed error
	for {
		var line string
		var isLine bool
		line, rest, isLine = strings.Cut(rest, "\n")
		if line = strings.TrimSuffix(line, "\r"); isLine && line == "" {
			r.end()
			return failed
		}
		name, value, isHeader := strings.Cut(line, ":")
		if !isLine || !isHeader {
			m.ID, m.Key, m.Headers = "", "", nil
			return nil
		}
		if err := r.read(name, strings.TrimLeft(value, " \t")); failed == nil {
			failed = err
		}
	}
}

// beginsHeaders reports whether a line is the first of headers: the version, and a
// status or nothing.
func beginsHeaders(line string) bool {
	status, ok := strings.CutPrefix(line, headersBegin)
	return ok && (status == "" || len(strings.TrimSpace(status)) >= len("503"))
}

// linesOf is how many headers a text has, at most.
func linesOf(text string) int { return max(strings.Count(text, "\n")-2, 0) }

// otherHeaders is for how many of n headers there is to be memory: not for the ID,
// which nearly all messages have.
func otherHeaders(n int) int { return min(max(n-1, 0), many) }

func (r *headerReader) read(name, escaped string) error {
	own, isForeign := strings.CutPrefix(name, foreign)
	if !isForeign && !strings.HasPrefix(name, attributes) {
		return nil
	}
	if isForeign {
		var ok bool
		if own, ok = unescape(own); !ok {
			return fmt.Errorf("header name %q is not escaped as it should be", name)
		}
	}
	if r.has(name, own) {
		return nil
	}
	value, ok := unescape(escaped)
	if !ok {
		return fmt.Errorf("header %q: %q is not escaped as it should be", name, escaped)
	}
	switch name {
	case idHeader:
		r.m.ID, r.hasID = value, true
	case keyHeader:
		r.m.Key, r.hasKey = value, true
	default:
		r.m.Headers = append(r.m.Headers, backend.Header{Name: own, Value: value})
		if r.names != nil {
			r.names[own] = struct{}{}
		}
	}
	return nil
}

// has reports whether there is one already: name is how it is written, own is how
// the program calls it.
func (r *headerReader) has(name, own string) bool {
	switch name {
	case idHeader:
		return r.hasID
	case keyHeader:
		return r.hasKey
	}
	if len(r.m.Headers) < many {
		_, ok := r.m.Headers.Lookup(own)
		return ok
	}
	if r.names == nil {
		r.names = make(map[string]struct{}, 2*many)
		for i := range r.m.Headers {
			r.names[r.m.Headers[i].Name] = struct{}{}
		}
	}
	_, ok := r.names[own]
	return ok
}

func (r *headerReader) end() {
	if len(r.m.Headers) == 0 {
		r.m.Headers = nil
	}
}

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
