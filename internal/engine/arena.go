package engine

// An arena has copies of the payloads of one flush, and keeps its memory for the
// next.
type arena struct {
	buffer []byte
	at     int // where its free part begins
	used   int // by this flush, in earlier buffers too
}

const (
	maxBuffer   = 2 << 20  // but for a larger payload
	smallBuffer = 64 << 10 // one that is kept although the last flush needed much less
)

// copy returns a copy of b. Where the buffer is full another begins, twice as
// large: earlier copies stay where they are.
func (a *arena) copy(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	if len(b) > len(a.buffer)-a.at {
		a.buffer, a.at = make([]byte, max(min(2*len(a.buffer), maxBuffer), len(b))), 0
	}
	end := a.at + copy(a.buffer[a.at:], b)
	own := a.buffer[a.at:end:end]
	a.at = end
	a.used += len(b)
	return own
}

// empty voids the copies. It lets go of a buffer that was much larger than the
// flush.
func (a *arena) empty() {
	if len(a.buffer) > smallBuffer && a.used < len(a.buffer)/8 {
		a.buffer = nil
	}
	a.at, a.used = 0, 0
}
