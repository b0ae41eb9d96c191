package nats

import "sync"

// A roster has the open members of a backend.
type roster struct {
	mu     sync.Mutex
	all    map[*source]struct{}
	closed bool
}

// add adds a member. It returns false, and adds none, after close.
func (r *roster) add(s *source) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.all == nil {
		r.all = map[*source]struct{}{}
	}
	r.all[s] = struct{}{}
	return true
}

func (r *roster) remove(s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
}

// of returns the members of a group.
func (r *roster) of(topic, group string) (all []*source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.config.Topic == topic && s.config.Group == group {
			all = append(all, s)
		}
	}
	return all
}

// close returns all members, and refuses further ones.
func (r *roster) close() (all []*source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for s := range r.all {
		all = append(all, s)
	}
	return all
}
