package inmemory

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

const (
	arenaSize    = 64 << 10 // one message kept by its receiver keeps no more than this
	largePayload = 4 << 10  // larger payloads are allocated on their own
)

// A slab is the memory for copies of the messages of one batch: a handful of
// allocations instead of several for each. First measure every message, then
// own each.
type slab struct {
	small     int // payload bytes that will come from arenas
	count     int // of headers
	messages  int
	arena     []byte
	headers   []backend.Header
	positions strings.Builder
}

func (s *slab) measure(m *backend.Message) {
	if len(m.Payload) <= largePayload {
		s.small += len(m.Payload)
	}
	s.count += len(m.Headers)
	s.messages++
}

// own gives m copies of its payload and headers. They end at their capacity, so
// that appending to one does not reach the next.
func (s *slab) own(m *backend.Message) {
	m.Payload, m.Headers = s.payload(m.Payload), s.header(m.Headers)
}

func (s *slab) payload(p []byte) []byte {
	if len(p) == 0 || len(p) > largePayload {
		return bytes.Clone(p)
	}
	if len(p) > len(s.arena) {
		s.arena = make([]byte, min(s.small, arenaSize))
	}
	own := s.arena[:len(p):len(p)]
	copy(own, p)
	s.arena = s.arena[len(p):]
	s.small -= len(p)
	return own
}

func (s *slab) header(h backend.Headers) backend.Headers {
	if len(h) == 0 {
		return nil
	}
	if s.headers == nil {
		s.headers = make([]backend.Header, s.count)
	}
	own := s.headers[:len(h):len(h)]
	copy(own, h)
	s.headers = s.headers[len(h):]
	return own
}

const positionLen = 16 // hexadecimal digits: positions compare as offsets do

func (s *slab) position(offset uint64) string {
	if s.positions.Cap() == 0 {
		s.positions.Grow(s.messages * positionLen)
	}
	var digits [positionLen]byte
	for i := range digits {
		digits[i] = "0123456789abcdef"[offset>>(60-4*i)&15]
	}
	s.positions.Write(digits[:])
	all := s.positions.String()
	return all[len(all)-positionLen:]
}

func parsePosition(p string) (offset uint64, err error) {
	if len(p) == positionLen {
		offset, err = strconv.ParseUint(p, 16, 64)
	}
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%q is not a position", p)
	}
	return offset, nil
}
