// Package slab holds the memory of one read: a handful of allocations in place of
// several for each message. What it gives out is its receiver's to keep and to
// change: nothing is used twice, and a piece ends at its capacity, so that
// appending to one does not reach the next.
package slab

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/seed41896749/eventbus/backend"
)

const (
	arena = 64 << 10 // one message that its receiver keeps, keeps no more than this alive
	large = 4 << 10  // larger payloads are allocated on their own
	many  = 2 << 10  // headers, which are as large as an arena
)

// A Slab first learns how much will be asked of it, from Expect for each
// message, and then gives it out. The zero value is ready to use, once.
type Slab struct {
	expected, used need

	bytes []byte
	texts strings.Builder
	names []backend.Header
}

// A need counts small payloads and texts in bytes, and headers.
type need struct{ payload, text, headers int }

// Expect announces a message with such a payload, so many headers and so many
// bytes of text.
func (s *Slab) Expect(payload, headers, text int) {
	if payload <= large {
		s.expected.payload += payload
	}
	s.expected.headers += headers
	s.expected.text += text
}

// Payload returns a copy of p.
func (s *Slab) Payload(p []byte) []byte {
	if len(p) == 0 || len(p) > large {
		return bytes.Clone(p)
	}
	if len(p) > len(s.bytes) {
		s.bytes = make([]byte, max(len(p), min(s.expected.payload-s.used.payload, arena)))
	}
	own := s.bytes[:len(p):len(p)]
	copy(own, p)
	s.bytes = s.bytes[len(p):]
	s.used.payload += len(p)
	return own
}

// Headers returns n empty headers, or nil for none.
func (s *Slab) Headers(n int) backend.Headers {
	if n == 0 {
		return nil
	}
	if n > len(s.names) {
		s.names = make([]backend.Header, max(n, min(s.expected.headers-s.used.headers, many)))
	}
	own := s.names[:n:n]
	s.names = s.names[n:]
	s.used.headers += n
	return own
}

// Alike returns n empty headers for one of so many messages, probably alike, that
// are still to come: nobody has looked for how many they have.
func (s *Slab) Alike(n, left int) backend.Headers {
	if n > len(s.names) {
		s.expected.headers = s.used.headers + n*left
	}
	return s.Headers(n)
}

// Text returns a copy of p.
func (s *Slab) Text(p []byte) string {
	if len(p) == 0 {
		return ""
	}
	if s.texts.Cap()-s.texts.Len() < len(p) {
		s.texts = strings.Builder{}
		s.texts.Grow(max(len(p), min(s.expected.text-s.used.text, arena)))
	}
	s.texts.Write(p)
	s.used.text += len(p)
	all := s.texts.String()
	return all[len(all)-len(p):]
}

// Both returns a copy of p as text and as bytes, in the same memory: for what is
// text in front and bytes behind it. Bytes that are text are not to be given away.
func (s *Slab) Both(p []byte) (text string, own []byte) {
	if len(p) == 0 {
		return "", nil
	}
	text = s.Text(p)
	return text, unsafe.Slice(unsafe.StringData(text), len(text))
}
