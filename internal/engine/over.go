package engine

import (
	"math/bits"
	"sync"
)

// An over has the memory of reads that are over, for those to come: the holds,
// with their deliveries, are most of what an event takes here. The collector
// empties it.
//
// A read comes here if all of its events went the shortest way (received, run,
// acknowledged), in the mode in which handlers know no Hold. Of such a Hold a
// pointer is with one after the other: the desk, a worker, which forgets it as it
// hands it to be acknowledged, and the batch of acknowledgements, which lends its
// delivery to the backend and releases it when that call has returned. Whoever else
// comes by one, such as the watch, or who keeps leases, found it where all are
// listed, and the read notes that. Contexts, and what a delivery refers to (payload,
// headers, texts, token), are not used again.
type over struct {
	sizes [bits.UintSize]sync.Pool // of *read, each with room for twice as many as the one before
}

// newRead returns a read with n holds.
func (s *Subscription) newRead(a *attachment, n int) *read {
	r, _ := s.engine.over.sizes[sizeOf(n)].Get().(*read)
	if r == nil {
		room := n
		if s.Mode == OnSuccess {
			room = 1 << sizeOf(n)
		}
		r = &read{holds: make([]Hold, n, room)}
	}
	*r = read{sub: s, attachment: a, holds: r.holds[:n], left: n}
	ctxs := make([]runCtx, n)
	for i := range r.holds {
		r.holds[i].read, r.holds[i].ctx = r, &ctxs[i]
	}
	return r
}

// giveBack keeps the memory of r, of which nothing is held any more, if nobody
// can know it.
func (s *Subscription) giveBack(r *read) {
	if r.plain < len(r.holds) || r.listed || s.Mode != OnSuccess {
		return
	}
	clear(r.holds)
	s.engine.over.sizes[sizeOf(len(r.holds))].Put(r)
}

// sizeOf returns which size has room for n.
func sizeOf(n int) int { return bits.Len(uint(n - 1)) }
