package bolt

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var errUnreadable = errors.New("the stored body is unreadable")

// encode returns the record of m in a topic: the moment of storing, then each text with
// its length before it. JSON would make payloads a third longer.
func encode(m *backend.Message, stored uint64) []byte {
	b := make([]byte, 0, m.Size()+8*(len(m.Headers)+4))
	b = append(b, pack(stored)...)
	b = appendText(b, m.ID)
	b = appendText(b, m.Key)
	b = appendText(b, m.Payload)
	for _, h := range m.Headers {
		b = appendText(b, h.Name)
		b = appendText(b, h.Value)
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decode reads a record of encode. The message has memory of its own, because the
// transaction owns the pages of the file.
func decode(b []byte) (m backend.Message, stored time.Time, err error) {
	if len(b) < 8 {
		return m, stored, errUnreadable
	}
	stored = time.UnixMicro(int64(storedAt(b)))
	r := textReader{rest: b[8:]}
	m.ID, m.Key, m.Payload = string(r.text()), string(r.text()), append([]byte{}, r.text()...)
	for len(r.rest) > 0 && !r.short {
		m.Headers = append(m.Headers, backend.Header{Name: string(r.text()), Value: string(r.text())})
	}
	if r.short {
		return backend.Message{Payload: append([]byte{}, b...)}, stored, errUnreadable
	}
	return m, stored, nil
}

// storedAt returns the time at which the message of a record was stored; zero for no record.
func storedAt(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return numberAt(b, 0)
}

// size returns Message.Size of the message of a record.
func size(b []byte) (n int) {
	for r := (textReader{rest: b[min(8, len(b)):]}); len(r.rest) > 0 && !r.short; {
		n += len(r.text())
	}
	return n
}

// A textReader reads texts, and records whether one was cut off.
type textReader struct {
	rest  []byte
	short bool
}

func (r *textReader) text() []byte {
	length, n := binary.Uvarint(r.rest)
	if n <= 0 || length > uint64(len(r.rest)-n) {
		r.short = true
		return nil
	}
	text := r.rest[n : n+int(length)]
	r.rest = r.rest[n+int(length):]
	return text
}
