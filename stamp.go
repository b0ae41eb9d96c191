package eventbus

import (
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	uuidLen  = 36
	textSize = 512 // bytes of an allocation that several texts share; a program that keeps one ID keeps all of them in memory
)

// fill sets ID, Source and Time of e if they are empty.
func (s *encoder) fill(e *Event, service string, now time.Time) {
	if e.ID == "" {
		var text [uuidLen]byte
		encodeID(text[:], s.ids.next(now))
		e.ID = s.text(text[:])
	}
	if e.Source == "" {
		e.Source = service
	}
	if e.Time.IsZero() {
		e.Time = now.Round(0)
	}
}

// timeText returns t as text.
func (s *encoder) timeText(t time.Time) string {
	var text [len(time.RFC3339Nano)]byte
	return s.text(s.second.appendTime(text[:0], t))
}

// A second caches the text of the last formatted second, because many events have times in
// the same second.
type second struct {
	unix int64
	text [len(time.DateTime)]byte
}

// appendTime appends t in UTC as RFC 3339. The fraction of the second has no trailing
// zeros.
func (s *second) appendTime(to []byte, t time.Time) []byte {
	if unix := t.Unix(); unix != s.unix || s.text[0] == 0 {
		text := t.UTC().AppendFormat(nil, rfc3339Second)
		if len(text) != len(s.text) { // a year beyond 9999 or before 0
			return t.UTC().AppendFormat(to, time.RFC3339Nano)
		}
		s.unix = unix
		copy(s.text[:], text)
	}
	to = append(to, s.text[:]...)
	if nanos := t.Nanosecond(); nanos > 0 {
		digits, n := [10]byte{'.'}, 10
		for i := 9; i > 0; i-- {
			digits[i] = '0' + byte(nanos%10)
			nanos /= 10
		}
		for digits[n-1] == '0' {
			n--
		}
		to = append(to, digits[:n]...)
	}
	return append(to, 'Z')
}

const rfc3339Second = "2006-01-02T15:04:05"

// text returns a string with the bytes of p. Several such strings share one allocation.
func (s *encoder) text(p []byte) string {
	if s.texts.Cap()-s.texts.Len() < len(p) {
		s.texts = strings.Builder{}
		s.texts.Grow(max(textSize, len(p)))
	}
	s.texts.Write(p)
	all := s.texts.String()
	return all[len(all)-len(p):]
}

// encodeID writes the usual text of id, 36 characters, to the slice to.
func encodeID(to []byte, id uuid.UUID) {
	const digits = "0123456789abcdef"
	_ = to[uuidLen-1]
	for i, at := range [...]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		to[at], to[at+1] = digits[id[i]>>4], digits[id[i]&15]
	}
	to[8], to[13], to[18], to[23] = '-', '-', '-', '-'
}
