package eventbus

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// An idSource makes UUIDv7s like package uuid, without an allocation for each: it reads
// random bytes for many at once. It is not safe for concurrent use.
type idSource struct {
	random [512]byte
	left   int // unused bytes at the end of random
}

// lastID is the time of the last ID of the process, in 1/4096 ms since 1970.
var lastID atomic.Int64

// next returns an ID for now. Later IDs of a process are greater.
func (s *idSource) next(now time.Time) (id uuid.UUID) {
	if s.left == 0 {
		_, _ = rand.Read(s.random[:]) // it never fails
		s.left = len(s.random)
	}
	s.left -= copy(id[8:], s.random[len(s.random)-s.left:])
	at := stampID(now)
	binary.BigEndian.PutUint64(id[:], uint64(at>>12)<<16|7<<12|uint64(at&0xfff)) // milliseconds, version, the rest
	id[8] = id[8]&0x3f | 0x80                                                    // variant
	return id
}

// stampID returns now in 1/4096 ms, or one more than the last ID's time if that is later.
func stampID(now time.Time) int64 {
	nanos := now.UnixNano()
	ms := nanos / int64(time.Millisecond)
	at := ms<<12 + (nanos-ms*int64(time.Millisecond))>>8 // less than 4096, as in package uuid
	for {
		last := lastID.Load()
		if at <= last {
			at = last + 1
		}
		if lastID.CompareAndSwap(last, at) {
			return at
		}
	}
}
