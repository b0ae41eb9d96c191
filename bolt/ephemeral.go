package bolt

import (
	"maps"
	"time"
)

// An ephemeralGroup holds the members of an ephemeral group. They all belong to this process, because only
// one process at a time has the file open, so their heartbeats need not be stored.
type ephemeralGroup struct {
	topic, name string
	members     map[*source]struct{}
}

// ephemeralLeases is the number of leases after which a member counts as dead; see
// [backend.Config].
const ephemeralLeases = 10

// expired reports whether no member lives.
func (e *ephemeralGroup) expired(now time.Time) bool {
	for m := range e.members {
		if m.receiving || now.Sub(m.lastSeen) <= ephemeralLeases*m.config.Lease {
			return false
		}
	}
	return true
}

// joinEphemeral adds a member to its ephemeral group. Attach calls it in its transaction, so that deleteExpired never
// sees the group without the member.
func (s *store) joinEphemeral(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.ephemerals[m.group]
	if e == nil {
		e = &ephemeralGroup{topic: m.config.Topic, name: m.config.Group, members: map[*source]struct{}{}}
		s.ephemerals[m.group] = e
	}
	e.members[m], m.lastSeen = struct{}{}, time.Now()
}

// removeReplaced removes the members of an ephemeral group that m has replaced.
func (s *store) removeReplaced(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.ephemerals[m.group]; e != nil && m.config.Instance != "" {
		maps.DeleteFunc(e.members, func(old *source, _ struct{}) bool {
			return old.config.Instance == m.config.Instance && old.config.Incarnation != m.config.Incarnation && old.member < m.member
		})
	}
}

// touch records that a member of an ephemeral group lives.
func (s *store) touch(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.lastSeen = time.Now()
}

// setReceiving records that a member of an ephemeral group begins or ends Receive.
func (s *store) setReceiving(m *source, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.receiving, m.lastSeen = now, time.Now()
}

// touchAll records that all members of an ephemeral group live. It returns the time until its next call.
func (s *store) touchAll(group uint64) (next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = maintainInterval
	if e := s.ephemerals[group]; e != nil {
		for m := range e.members {
			m.lastSeen = time.Now()
			next = min(next, ephemeralLeases*m.config.Lease/4)
		}
	}
	return max(next, maintainAgain)
}

// expiredGroups returns the ephemeral groups without a living member, by identity.
func (s *store) expiredGroups() map[uint64]*ephemeralGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, now := map[uint64]*ephemeralGroup{}, time.Now()
	for identity, e := range s.ephemerals {
		if e.expired(now) {
			found[identity] = e
		}
	}
	return found
}

// deleteExpired deletes the ephemeral groups without a living member. None of their members waits, so there
// is none to wake.
func (s *store) deleteExpired() error {
	found := s.expiredGroups()
	if len(found) == 0 {
		return nil
	}
	err := s.commits.write(func(t *txn) error {
		found = s.expiredGroups() // again, because no Attach runs now
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
		s.forgetEphemeral(identity, e)
	}
	return nil
}

// forgetEphemeral forgets an ephemeral group that was deleted.
func (s *store) forgetEphemeral(identity uint64, e *ephemeralGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ephemerals[identity] == e { // and no later group, after a transaction that was rolled back
		delete(s.ephemerals, identity)
	}
}

// deleteLeftovers deletes the ephemeral groups that earlier processes have left in the file.
func (s *store) deleteLeftovers(t *txn) error {
	if t.format() < newestFormat {
		return nil
	}
	names, err := bucketNames(t.topics)
	if err != nil {
		return err
	}
	for _, name := range names {
		found, err := t.topic(name)
		if err != nil {
			return err
		}
		groups, err := bucketNames(found.groups)
		if err != nil {
			return err
		}
		for _, group := range groups {
			g, err := found.group(group)
			if err != nil {
				return err
			}
			if g.ephemeral && !s.hasEphemeral(g.identity) {
				found.deleteGroup(group)
			}
		}
	}
	return t.err
}

// hasEphemeral reports whether a group is an ephemeral group of this process.
func (s *store) hasEphemeral(group uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ephemerals[group] != nil
}
