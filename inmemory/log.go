package inmemory

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A log keeps the messages of a topic by offset. The lowest offset is 1, so every message
// is after position(0).
type log struct {
	first   uint64 // offset of the oldest kept record
	records []*record
	kept    int       // number of messages, without removed messages
	bytes   int64     // their total size
	largest int       // size of the largest message that was ever stored, in bytes
	latest  time.Time // the last result of now
}

// A record is a stored message. A record never changes, so it can be read without the lock
// of the topic. If a message is removed, the log puts another record in its place.
type record struct {
	message backend.Message // only topic and position if the message was removed
	stored  time.Time
	err     error // errRemoved if the message was removed; the Err of deliveries
}

var errRemoved = fmt.Errorf("%w: the message was removed", backend.ErrGone)

// errBeyond means that a position is beyond the end of the log.
var errBeyond = fmt.Errorf("%w: the position is beyond the end", backend.ErrRefused)

// next returns the offset of the next message to be stored.
func (l *log) next() uint64 { return l.first + uint64(len(l.records)) }

// at returns the message at an offset from first to next-1.
func (l *log) at(offset uint64) *record { return l.records[offset-l.first] }

// now returns the time for a new message, which is never before that of an earlier one.
func (l *log) now() time.Time {
	if t := time.Now(); t.After(l.latest) {
		l.latest = t
	}
	return l.latest
}

// store appends a message of a size, and gives it its position.
func (l *log) store(r *record, size int) {
	r.message.Position = position(l.next())
	l.records = append(l.records, r)
	l.kept++
	l.bytes += int64(size)
	l.largest = max(l.largest, size)
}

// offsetAt returns the offset of the first message stored at t or later, or the next offset.
func (l *log) offsetAt(t time.Time) uint64 {
	i, _ := slices.BinarySearchFunc(l.records, t, func(r *record, t time.Time) int { return r.stored.Compare(t) })
	return l.first + uint64(i)
}

// trim forgets the records below offset. Unless all is set, it stops at the first message
// that was not removed. It returns the number and the size of the forgotten messages.
func (l *log) trim(offset uint64, all bool) (messages int, bytes int64) {
	for ; l.first < offset && (all || l.records[0].err != nil); l.first++ {
		if r := l.records[0]; r.err == nil {
			messages++
			bytes += int64(r.message.Size())
		}
		l.records[0], l.records = nil, l.records[1:]
	}
	l.kept -= messages
	l.bytes -= bytes
	return messages, bytes
}

// remove forgets the message at an offset. It returns 1 and the size of the message. It
// returns zeros if the log does not have the message.
func (l *log) remove(offset uint64) (messages int, bytes int64) {
	if offset < l.first || offset >= l.next() || l.at(offset).err != nil {
		return 0, 0
	}
	r := l.at(offset)
	place := backend.Message{Topic: r.message.Topic, Position: r.message.Position}
	l.records[offset-l.first] = &record{place, r.stored, errRemoved}
	l.kept--
	l.bytes -= int64(r.message.Size())
	return 1, int64(r.message.Size())
}

// resolveStart returns the offset of the first message that a group with this start gets. It refuses a position beyond the end.
func (l *log) resolveStart(start backend.Start) (offset uint64, err error) {
	if after, ok := start.After(); ok {
		offset, err = parsePosition(after)
		if err == nil && offset >= l.next() {
			return l.next(), fmt.Errorf("%w, %s", errBeyond, after)
		}
		return max(offset+1, l.first), err
	}
	if t, ok := start.At(); ok {
		return l.offsetAt(t), nil
	}
	switch start {
	case backend.StartEarliest:
		return l.first, nil
	case backend.StartLatest:
		return l.next(), nil
	}
	return 0, fmt.Errorf("%w: unknown start %q", backend.ErrRefused, start)
}

const zeros = "0000000000000000" // as many digits as a position has; the digits are hexadecimal

// position returns the position of the message at an offset. Positions compare as strings
// like their offsets.
func position(offset uint64) string {
	digits := strconv.AppendUint(make([]byte, 0, len(zeros)), offset, 16)
	return zeros[len(digits):] + string(digits)
}

func parsePosition(p string) (offset uint64, err error) {
	offset, err = strconv.ParseUint(p, 16, 64)
	if err != nil || len(p) != len(zeros) {
		return 0, fmt.Errorf("%w: %q is not a position", backend.ErrRefused, p)
	}
	return offset, nil
}

// copyPayloads copies the payload and the headers of each of n messages, so that a message shares no
// memory with its original.
func copyPayloads(n int, message func(i int) *backend.Message) {
	var s slab.Slab
	for i := range n {
		s.Expect(len(message(i).Payload), len(message(i).Headers), 0)
	}
	for i := range n {
		m := message(i)
		headers := s.Headers(len(m.Headers))
		copy(headers, m.Headers)
		m.Headers, m.Payload = headers, s.Payload(m.Payload)
	}
}

// copyTexts copies the texts of each of n messages whose headers are own, so that texts of messages that follow each
// other are together in memory. A processor reads them much faster than texts that are far apart.
func copyTexts(n int, message func(i int) *backend.Message) {
	var s slab.Slab
	for i := range n {
		m := message(i)
		size := len(m.ID) + len(m.Key)
		for j := range m.Headers {
			size += len(m.Headers[j].Value)
		}
		s.Expect(0, 0, size)
	}
	for i := range n {
		m := message(i)
		m.ID, m.Key = s.Copy(m.ID), s.Copy(m.Key)
		for j := range m.Headers {
			m.Headers[j].Value = s.Copy(m.Headers[j].Value)
		}
	}
}
