package inmemory

import "github.com/seed41896749/eventbus/backend"

// A record is a message as it is kept. It never changes; what it refers to is
// the log's own, shared by all that read it.
type record struct {
	id, key string
	headers backend.Headers
	payload []byte
	stored  moment
}

func (r *record) size() int {
	return len(r.payload) + len(r.id) + len(r.key) + r.headers.Size()
}

func (r *record) message(topic string) backend.Message {
	return backend.Message{Topic: topic, ID: r.id, Key: r.key, Headers: r.headers, Payload: r.payload}
}

const chunkSize = 64

type chunk [chunkSize]record

// A log keeps records by offset, in chunks, so that trimming frees memory and
// appending copies nothing.
type log struct {
	first  uint64 // the oldest kept
	next   uint64 // the next to be stored
	chunks []*chunk
	spare  *chunk // the last one trimmed: a steady stream allocates none
}

// The first offset is 1, so that every position is greater than zero's.
func newLog() log { return log{first: 1, next: 1} }

func (l *log) len() int64 { return int64(l.next - l.first) }

// at returns the record at an offset from first to next-1.
func (l *log) at(offset uint64) *record {
	return &l.chunks[offset/chunkSize-l.first/chunkSize][offset%chunkSize]
}

// append stores r and returns its offset.
func (l *log) append(r record) uint64 {
	if int(l.next/chunkSize-l.first/chunkSize) == len(l.chunks) {
		c := l.spare
		if c == nil {
			c = new(chunk)
		}
		l.chunks, l.spare = append(l.chunks, c), nil
	}
	offset := l.next
	l.next++
	*l.at(offset) = r
	return offset
}

// trim forgets what is below offset and returns how much that was.
func (l *log) trim(offset uint64) (messages, bytes int64) {
	for ; l.first < offset; messages++ {
		r := l.at(l.first)
		bytes += int64(r.size())
		*r = record{}
		l.first++
		if l.first%chunkSize == 0 {
			l.spare, l.chunks[0] = l.chunks[0], nil
			l.chunks = l.chunks[1:]
		}
	}
	return messages, bytes
}
