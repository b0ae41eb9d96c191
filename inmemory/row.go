package inmemory

const chunkSize = 64

// A row keeps things by offset, in chunks, so that forgetting frees memory and
// appending moves nothing: a pointer into it is good until its offset is
// forgotten.
type row[T any] struct {
	first  uint64 // the oldest kept
	next   uint64 // the next to be appended
	chunks []*[chunkSize]T
	spare  *[chunkSize]T // the last one forgotten: a steady stream allocates none
}

func newRow[T any](first uint64) row[T] { return row[T]{first: first, next: first} }

func (r *row[T]) len() int64 { return int64(r.next - r.first) }

// at returns what is at an offset from first to next-1.
func (r *row[T]) at(offset uint64) *T {
	return &r.chunks[offset/chunkSize-r.first/chunkSize][offset%chunkSize]
}

// append makes room for one more, which is zero, and returns where it is.
func (r *row[T]) append() (offset uint64, _ *T) {
	if int(r.next/chunkSize-r.first/chunkSize) == len(r.chunks) {
		c := r.spare
		if c == nil {
			c = new([chunkSize]T)
		}
		r.chunks, r.spare = append(r.chunks, c), nil
	}
	offset = r.next
	r.next++
	return offset, r.at(offset)
}

// forget drops the oldest.
func (r *row[T]) forget() {
	var zero T
	*r.at(r.first) = zero
	r.first++
	if r.first%chunkSize == 0 {
		r.spare, r.chunks[0] = r.chunks[0], nil
		r.chunks = r.chunks[1:]
	}
}
