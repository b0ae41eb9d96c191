package inmemory

import "sync"

// A row keeps entries by offset, in chunks, so that forgetting frees memory and
// appending moves nothing: a pointer into it is good until its offset is
// forgotten.
type row struct {
	first  uint64 // the oldest kept
	next   uint64 // the next to be appended
	chunks []*chunk
	spare  *spare[chunk]
}

const chunkSize = 64

type chunk [chunkSize]entry

func newRow(first uint64, s *spare[chunk]) row {
	return row{first: first, next: first, spare: s}
}

func (r *row) len() int64 { return int64(r.next - r.first) }

// at returns what is at an offset from first to next-1.
func (r *row) at(offset uint64) *entry {
	return &r.chunks[offset/chunkSize-r.first/chunkSize][offset%chunkSize]
}

// append makes room for one more, which is zero, and returns where it is.
func (r *row) append() (offset uint64, _ *entry) {
	if int(r.next/chunkSize-r.first/chunkSize) == len(r.chunks) {
		r.chunks = append(r.chunks, r.spare.take())
	}
	offset = r.next
	r.next++
	return offset, r.at(offset)
}

// forget drops the oldest.
func (r *row) forget() {
	*r.at(r.first) = entry{}
	r.first++
	if r.first%chunkSize == 0 {
		r.spare.keep(r.chunks[0])
		r.chunks[0] = nil
		r.chunks = r.chunks[1:]
	}
}

// A spare has chunks, or pages, that were forgotten, for all topics: a steady stream
// allocates none, and an idle topic keeps none.
type spare[T any] struct{ pool sync.Pool }

func (s *spare[T]) keep(c *T) { s.pool.Put(c) }

func (s *spare[T]) take() *T {
	if c, ok := s.pool.Get().(*T); ok {
		return c
	}
	return new(T)
}
