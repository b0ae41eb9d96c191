package eventbus

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// An idSource makes UUIDv7s like package uuid, but without an allocation for each ID,
// because it reads random bytes for many IDs in one call. It is not safe for concurrent
// use.
type idSource struct {
	random [512]byte
	left   int // the number of unused bytes at the end of random
}

// lastID is the time in the newest ID of this process, in 1/4096 ms since 1970.
var lastID atomic.Int64

// next returns an ID with the time now. A later ID of the same process is greater.
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

// stampID returns the time for a new ID, in 1/4096 ms since 1970. It is now, or lastID plus
// one if that is later, and becomes lastID.
func stampID(now time.Time) int64 {
	nanos := now.UnixNano()
	ms := nanos / int64(time.Millisecond)
	at := ms<<12 + (nanos-ms*int64(time.Millisecond))>>8 // the second term is less than 4096, as in package uuid
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
