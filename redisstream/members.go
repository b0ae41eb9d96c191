package redisstream

import (
	"maps"
	"slices"
	"sync"
)

// members are the open members of a backend.
type members struct {
	mu  sync.Mutex
	all map[*source]struct{}
}

func (m *members) add(s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[*source]struct{}{}
	}
	m.all[s] = struct{}{}
}

func (m *members) remove(s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, s)
}

func (m *members) list() []*source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

// ephemeral returns the members of an ephemeral group.
func (m *members) ephemeral(topic, group string) (all []*source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.all {
		if c := &s.config; c.Ephemeral && c.Topic == topic && c.Group == group {
			all = append(all, s)
		}
	}
	return all
}

// groups returns the names of the groups of a topic that have a member. Each must exist before
// the topic is trimmed. An ephemeral group need not, because it may have ended.
func (m *members) groups(topic string) (names []any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.all {
		if s.config.Topic == topic && !s.config.Ephemeral {
			names = append(names, s.config.Group)
		}
	}
	return names
}
