// Package slab allocates the memory for all messages of one Receive together: a few
// allocations instead of several for each message. The receiver may keep and change each
// piece. No memory is used twice. A piece's capacity ends at its length, so that appending
// to it does not reach the next piece.
package slab

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/seed41896749/eventbus/backend"
)

const (
	arena = 64 << 10 // the most memory that a kept piece keeps alive, or one larger text
	large = 4 << 10  // a larger payload has its own allocation
	many  = 2 << 10  // the most headers that share an allocation
)

// A Slab gives out memory for the messages of one Receive. Before that, the caller
// announces how much is needed, by one call of Expect for each message. The zero value is
// ready to use, for one Receive only.
type Slab struct {
	expected, used need

	bytes []byte
	texts strings.Builder
	names []backend.Header
}

// A need counts the bytes of small payloads and texts, and headers.
type need struct{ payload, text, headers int }

// Expect announces a message: the bytes of its payload, the number of its headers, and the
// bytes of its text.
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

// Alike returns n empty headers, for callers that have not announced headers by Expect. It
// assumes that the messages left, including this one, have n headers each; left is their
// number.
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

// Both returns a copy of p as text and as bytes in the same memory, for data that begins
// with text and ends with bytes. The caller must use each byte of p as text or as bytes only.
func (s *Slab) Both(p []byte) (text string, own []byte) {
	if len(p) == 0 {
		return "", nil
	}
	text = s.Text(p)
	return text, unsafe.Slice(unsafe.StringData(text), len(text))
}
