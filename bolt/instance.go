package bolt

import (
	"strings"

	"go.etcd.io/bbolt"
)

// join adds the member s to an ephemeral group. If s has an Instance, join stores it, makes all
// messages due that earlier incarnations of the instance hold, and removes the members of
// these. A member whose record is missing has therefore been replaced.
func (g *group) join(s *source) {
	if g.ephemeral {
		s.backend.store.joinEphemeral(s)
	}
	if s.config.Instance == "" {
		return
	}
	members, err := g.makeBucket(g.root, "members") // missing in a file of an earlier version
	if err != nil {
		return // the transaction has failed
	}
	earlier := map[uint64]bool{}
	g.eachMember(func(member uint64, instance, incarnation string) {
		if instance == s.config.Instance && incarnation != s.config.Incarnation {
			earlier[member] = true
		}
	})
	g.release(earlier)
	g.removeMembers(earlier)
	g.put(members, pack(g.identity, s.member), []byte(s.config.Instance+" "+s.config.Incarnation))
	s.backend.store.addLive(s.member)
}

// release makes all messages due that the given members hold.
func (g *group) release(members map[uint64]bool) {
	if len(members) == 0 {
		return
	}
	var held []entry
	c := g.entries.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if e := g.entry(numberAt(k, 0)); members[e.held] {
			held = append(held, e)
		}
	}
	for _, e := range held {
		e.held = 0
		g.postpone(e, 0)
	}
}

// members returns the records of members that have an Instance. It returns nil for a file of an
// earlier version, until a member needs it.
func (t *topic) members() *bbolt.Bucket { return t.root.Bucket([]byte("members")) }

// eachMember calls f for each member of the group that has an Instance.
func (g *group) eachMember(f func(member uint64, instance, incarnation string)) {
	members := g.members()
	if members == nil {
		return
	}
	c := members.Cursor()
	for k, v := c.Seek(pack(g.identity)); k != nil && numberAt(k, 0) == g.identity; k, v = c.Next() {
		instance, incarnation, _ := strings.Cut(string(v), " ")
		f(numberAt(k, 1), instance, incarnation)
	}
}

// hasMember reports whether the record of a member with an Instance exists.
func (g *group) hasMember(member uint64) bool {
	members := g.members()
	return members != nil && members.Get(pack(g.identity, member)) != nil
}

// removeEndedMembers removes the record of each member that has ended and holds nothing.
func (g *group) removeEndedMembers(alive func(member uint64) bool) {
	ended := map[uint64]bool{}
	g.eachMember(func(member uint64, _, _ string) {
		if !alive(member) {
			ended[member] = true
		}
	})
	if len(ended) == 0 {
		return
	}
	c := g.entries.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		delete(ended, g.entry(numberAt(k, 0)).held)
	}
	g.removeMembers(ended)
}

// removeAllMembers removes the records of all members.
func (g *group) removeAllMembers() {
	all := map[uint64]bool{}
	g.eachMember(func(member uint64, _, _ string) { all[member] = true })
	g.removeMembers(all)
}

func (g *group) removeMembers(members map[uint64]bool) {
	for member := range members {
		g.remove(g.members(), pack(g.identity, member))
	}
}

// addLive records that a member with an Instance is of this process.
func (s *store) addLive(member uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[member] = true
}

// removeMember records that a member has ended.
func (s *store) removeMember(m *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, m.member)
	if e := s.ephemerals[m.group]; e != nil {
		delete(e.members, m)
	}
}

// isLive reports whether a member with an Instance is of this process and has not ended.
func (s *store) isLive(member uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[member]
}
