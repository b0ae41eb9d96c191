package redisstream

import "sync"

// readers are the wires for reads that wait. A member uses one during Receive, so that members
// that read in turn share wires. There are at most as many as members.
type readers struct {
	mu      sync.Mutex
	idle    []*wire // the one used last is used first
	lent    int
	members int
}

// join adds a member.
func (r *readers) join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
}

// leave removes a member, and ends the wires for which there is none any more.
func (r *readers) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members--
	r.trim()
}

func (r *readers) trim() {
	for len(r.idle) > 0 && len(r.idle)+r.lent > r.members {
		last := len(r.idle) - 1
		r.idle[0].end()
		copy(r.idle, r.idle[1:])
		r.idle[last], r.idle = nil, r.idle[:last]
	}
}

// open lends a wire to s for a Receive. It returns false if s is closed.
func (r *readers) open(s *source) bool {
	w := r.get(&s.backend.broker)
	w.onDone = s.unblock
	s.mu.Lock()
	s.reader = w
	s.mu.Unlock()
	if s.closed.Load() { // close has not seen the wire
		r.close(s)
		return false
	}
	return true
}

// close takes the wire of s back after a Receive.
func (r *readers) close(s *source) {
	s.mu.Lock()
	w := s.reader
	s.reader = nil
	s.mu.Unlock()
	r.put(w)
}

// get lends a wire for one read.
func (r *readers) get(b *broker) *wire {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent++
	if last := len(r.idle) - 1; last >= 0 {
		w := r.idle[last]
		r.idle[last], r.idle = nil, r.idle[:last]
		return w
	}
	w := newWire(b, block+patience)
	w.grace = grace
	return w
}

// put takes a wire back after its read.
func (r *readers) put(w *wire) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent--
	if !w.hasEnded() {
		r.idle = append(r.idle, w)
	}
	r.trim()
}
