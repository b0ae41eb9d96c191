package inmemory

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A log keeps messages by offset. Offsets begin with 1, so every position is
// greater than zero's.
type log struct {
	first     uint64 // offset of the oldest
	records   []*record
	positions string // of the next offset and its neighbours
}

// A record is a stored message. Nobody changes it, so it is read without the lock.
type record struct {
	message backend.Message
	stored  time.Time
}

// next is the offset of the next message to be stored.
func (l *log) next() uint64 { return l.first + uint64(len(l.records)) }

// at returns the message at an offset from first to next-1.
func (l *log) at(offset uint64) *record { return l.records[offset-l.first] }

// store appends a message and gives it its position.
func (l *log) store(r *record) {
	i := l.next() % neighbours
	if i == 0 || l.positions == "" {
		l.positions = positions(l.next() - i)
	}
	r.message.Position = l.positions[i*positionLen : (i+1)*positionLen]
	l.records = append(l.records, r)
}

// trim forgets the messages below offset, and says how many and how large they were.
func (l *log) trim(offset uint64) (messages int, bytes int64) {
	for ; l.first < offset; l.first++ {
		messages++
		bytes += int64(l.records[0].message.Size())
		l.records[0], l.records = nil, l.records[1:]
	}
	return messages, bytes
}

// resolve returns the offset at which start begins.
func (l *log) resolve(start backend.Start) (offset uint64, err error) {
	if after, ok := start.After(); ok {
		offset, err = parsePosition(after)
		if err == nil && offset >= l.next() {
			err = fmt.Errorf("%w: position %s is beyond the end", backend.ErrRefused, after)
		}
		return max(offset+1, l.first), err
	}
	switch start {
	case backend.StartEarliest:
		return l.first, nil
	case backend.StartLatest:
		return l.next(), nil
	}
	return 0, fmt.Errorf("%w: unknown start %q", backend.ErrRefused, start)
}

const (
	positionLen = 16 // hexadecimal digits: positions compare as offsets do
	neighbours  = 16 // offsets whose positions share an allocation
)

// positions returns the positions of neighbours from offset on.
func positions(offset uint64) string {
	var bytes []byte
	for i := range uint64(neighbours) {
		bytes = binary.BigEndian.AppendUint64(bytes, offset+i)
	}
	return hex.EncodeToString(bytes)
}

func parsePosition(p string) (offset uint64, err error) {
	bytes, err := hex.DecodeString(p)
	if err != nil || len(p) != positionLen {
		return 0, fmt.Errorf("%w: %q is not a position", backend.ErrRefused, p)
	}
	return binary.BigEndian.Uint64(bytes), nil
}

// A copier copies payloads and headers. Short ones share memory: one allocation for
// many. A [Backend] has a pool of copiers, so copying needs no lock.
type copier struct {
	payloads []byte
	headers  []backend.Header
}

const (
	short = 512 // a longer slice gets memory of its own
	alike = 16  // copies of one length that share memory; each keeps all of it alive
)

// own gives m a payload and headers of its own.
func (c *copier) own(m *backend.Message) {
	m.Payload = share(&c.payloads, m.Payload)
	m.Headers = share(&c.headers, m.Headers)
}

// share returns a copy of from. The copy ends at its capacity, so appending to it
// does not reach the next.
func share[T any](free *[]T, from []T) []T {
	n := len(from)
	switch {
	case n == 0 || n > short:
		return slices.Clone(from)
	case n > len(*free):
		*free = make([]T, alike*n)
	}
	own := (*free)[:n:n]
	*free = (*free)[n:]
	copy(own, from)
	return own
}
