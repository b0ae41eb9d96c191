package ledger

import (
	"slices"
)

// FailKey records, for later messages with the key of h, that a message with it failed for good.
func (l *Ledger) FailKey(h *Hold) {
	if n := h.lane; n != nil {
		n.failed = true
		h.Source.cloneKey(n)
	}
}

// FailKeys records that messages with these keys failed for good, before s has any message.
func (s *Source) FailKeys(keys ...string) {
	for _, key := range keys {
		s.lanes[key] = &lane{key: key, source: s, failed: true}
	}
}

// OrderKey returns the key by which h is ordered, which is empty with Total. ok is false if h waits
// for no other message.
func (h *Hold) OrderKey() (key string, ok bool) {
	if h.lane == nil {
		return "", false
	}
	return h.lane.key, true
}

// KeyFailed reports whether an earlier message of the key of h failed for good.
func (h *Hold) KeyFailed() bool { return h.lane != nil && h.lane.failed }

// ReleaseKey undoes FailKey, and reports whether it had an effect.
func (l *Ledger) ReleaseKey(key string) (had bool) {
	for _, s := range l.sources {
		if n := s.lanes[key]; n != nil && n.failed {
			n.failed, had = false, true
			s.dropLane(n)
		}
	}
	return had
}

// FailedKeys returns the keys that FailKey recorded, sorted.
func (l *Ledger) FailedKeys() (keys []string) {
	for _, s := range l.sources {
		for key, n := range s.lanes {
			if n.failed {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
