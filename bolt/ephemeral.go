package bolt

import (
	"maps"
	"time"
)

// An ephemeral is an ephemeral group. All its members are of this process, because one process at
// a time has the file open. So the signs of their lives are not stored.
type ephemeral struct {
	topic, name string
	members     map[*source]struct{}
}

// ephemeralLeases is the number of leases after which a member counts as dead, see
// [backend.Config].
const ephemeralLeases = 10

// dead reports whether no member lives.
func (e *ephemeral) dead(now time.Time) bool {
	for m := range e.members {
		if m.receiving || now.Sub(m.heard) <= ephemeralLeases*m.config.Lease {
			return false
		}
	}
	return true
}

// enter adds a member to its ephemeral group. Attach calls it in its transaction, so that reap never
// sees the group without the member.
func (s *store) enter(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.ephemerals[m.group]
	if e == nil {
		e = &ephemeral{topic: m.config.Topic, name: m.config.Group, members: map[*source]struct{}{}}
		s.ephemerals[m.group] = e
	}
	e.members[m], m.heard = struct{}{}, time.Now()
}

// supersede removes the members of an ephemeral group that m has replaced.
func (s *store) supersede(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.ephemerals[m.group]; e != nil && m.config.Instance != "" {
		maps.DeleteFunc(e.members, func(old *source, _ struct{}) bool {
			return old.config.Instance == m.config.Instance && old.config.Incarnation != m.config.Incarnation && old.member < m.member
		})
	}
}

// hear records that a member of an ephemeral group lives.
func (s *store) hear(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.heard = time.Now()
}

// receives records that a member of an ephemeral group begins or ends Receive.
func (s *store) receives(m *source, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.receiving, m.heard = now, time.Now()
}

// hearAll records that all members of an ephemeral group live. It returns the time until its next call.
func (s *store) hearAll(group uint64) (next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = maintainOften
	if e := s.ephemerals[group]; e != nil {
		for m := range e.members {
			m.heard = time.Now()
			next = min(next, ephemeralLeases*m.config.Lease/4)
		}
	}
	return max(next, maintainSoon)
}

// deceased returns the ephemeral groups without a living member, by identity.
func (s *store) deceased() map[uint64]*ephemeral {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, now := map[uint64]*ephemeral{}, time.Now()
	for identity, e := range s.ephemerals {
		if e.dead(now) {
			found[identity] = e
		}
	}
	return found
}

// reap deletes the ephemeral groups without a living member. None of their members waits, so there
// is none to wake.
func (s *store) reap() error {
	found := s.deceased()
	if len(found) == 0 {
		return nil
	}
	err := s.writer.write(func(t *txn) error {
		found = s.deceased() // again, because no Attach runs now
		for identity, e := range found {
			if g, err := t.find(e.topic, e.name); err == nil && g.identity == identity && g.ephemeral {
				g.deleteGroup(e.name)
			}
		}
		return nil
	}, s.commit)
	if err != nil {
		return err
	}
	for identity, e := range found {
		s.bury(identity, e)
	}
	return nil
}

// bury forgets an ephemeral group that was deleted.
func (s *store) bury(identity uint64, e *ephemeral) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ephemerals[identity] == e { // and no later group, after a transaction that was rolled back
		delete(s.ephemerals, identity)
	}
}

// sweep deletes the ephemeral groups that earlier processes have left in the file.
func (s *store) sweep(t *txn) error {
	if t.format() < newest {
		return nil
	}
	names, err := list(t.topics)
	if err != nil {
		return err
	}
	for _, name := range names {
		found, err := t.topic(name)
		if err != nil {
			return err
		}
		groups, err := list(found.groups)
		if err != nil {
			return err
		}
		for _, group := range groups {
			g, err := found.group(group)
			if err != nil {
				return err
			}
			if g.ephemeral && !s.knows(g.identity) {
				found.deleteGroup(group)
			}
		}
	}
	return t.err
}

// knows reports whether a group is an ephemeral group of this process.
func (s *store) knows(group uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ephemerals[group] != nil
}
