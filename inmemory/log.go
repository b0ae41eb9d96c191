package inmemory

import (
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A record is a message as it is kept. It never changes; what it refers to is
// the log's own, shared by all that read it.
type record struct {
	id, key  string
	position string
	headers  backend.Headers
	payload  []byte
	stored   moment
}

func (r *record) size() int {
	return len(r.payload) + len(r.id) + len(r.key) + r.headers.Size()
}

// read makes m the message, as one of topic.
func (r *record) read(m *backend.Message, topic string) {
	m.Topic, m.ID, m.Key, m.Position = topic, r.id, r.key, r.position
	m.Headers, m.Payload = r.headers, r.payload
}

// A log keeps records by offset.
//
// What messages of neighbouring offsets refer to shares memory, as they are
// forgotten one after another. How much a chunk will need is not known; it is
// expected to be what the last one needed.
type log struct {
	row[record]
	mem slab.Slab
}

// The first offset is 1, so that every position is greater than zero's.
func newLog(s *spare[record]) log { return log{row: newRow(1, s)} }

// store appends a copy of m and returns it.
func (l *log) store(m *backend.Message, now moment) *record {
	offset, r := l.append()
	if offset%chunkSize == 0 {
		l.mem = l.mem.Another()
	}
	r.id, r.key, r.position, r.stored = m.ID, m.Key, position(&l.mem, offset), now
	r.payload, r.headers = l.mem.Payload(m.Payload), l.mem.Headers(len(m.Headers))
	copy(r.headers, m.Headers)
	return r
}

// rest lets go of the memory for the next messages if none is kept.
func (l *log) rest() {
	if l.len() == 0 {
		l.mem = slab.Slab{}
	}
}

// trim forgets what is below offset and returns how much that was.
func (l *log) trim(offset uint64) (messages, bytes int64) {
	for ; l.first < offset; messages++ {
		bytes += int64(l.at(l.first).size())
		l.forget()
	}
	return messages, bytes
}
