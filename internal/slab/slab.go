// Package slab allocates the memory for all messages of one Receive together, in a few
// allocations instead of several per message. The receiver may keep and change each piece:
// memory is never reused, and a piece's capacity ends at its length, so that appending to it
// does not reach the next piece.
package slab

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/seed41896749/eventbus/backend"
)

const (
	arena = 64 << 10 // the most memory that a kept piece keeps alive, except for a single larger text
	large = 4 << 10  // larger payloads have an allocation of their own
	many  = 2 << 10  // the most headers that share an allocation
)

// A Slab hands out memory for the messages of one Receive. First announce how much is needed,
// with one call of Expect for each message. The zero value is ready to use, for one Receive
// only.
type Slab struct {
	expected, used need

	bytes []byte
	texts strings.Builder
	names []backend.Header
}

// A need counts the bytes of small payloads and of texts, and the headers.
type need struct{ payload, text, headers int }

// Expect announces a message: the bytes of its payload, the number of its headers, and the bytes
// of its text.
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

// Headers returns n empty headers, or nil if n is 0.
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

// Alike returns n empty headers, for callers that cannot announce headers with Expect. It
// assumes that all messages left, of which this is one, have n headers each.
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

// Copy returns a copy of text.
func (s *Slab) Copy(text string) string {
	return s.Text(unsafe.Slice(unsafe.StringData(text), len(text)))
}

// Both returns a copy of p as text and as bytes that share their memory, for data that begins
// with text and ends with bytes. Use each byte of p either as text or as bytes.
func (s *Slab) Both(p []byte) (text string, own []byte) {
	if len(p) == 0 {
		return "", nil
	}
	text = s.Text(p)
	return text, unsafe.Slice(unsafe.StringData(text), len(text))
}
