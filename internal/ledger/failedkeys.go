package ledger

import (
	"slices"
)

// FailKey records that a message with the key of h has failed permanently. KeyFailed reports this for
// later messages with that key.
func (l *Ledger) FailKey(h *Hold) {
	if n := h.lane; n != nil {
		n.failed = true
		h.Source.cloneKey(n)
	}
}

// FailKeys records that messages with these keys have failed permanently. Call it before s receives
// its first message.
func (s *Source) FailKeys(keys ...string) {
	for _, key := range keys {
		s.lanes[key] = &lane{key: key, source: s, failed: true}
	}
}

// OrderKey returns the key by which h is ordered; with Total that is the empty key. ok is false if
// h isn't ordered, and so waits for no other message.
func (h *Hold) OrderKey() (key string, ok bool) {
	if h.lane == nil {
		return "", false
	}
	return h.lane.key, true
}

// KeyFailed reports whether an earlier message with the key of h has failed permanently.
func (h *Hold) KeyFailed() bool { return h.lane != nil && h.lane.failed }

// ReleaseKey undoes FailKey. It reports whether there was anything to undo.
func (l *Ledger) ReleaseKey(key string) (had bool) {
	for _, s := range l.sources {
		if n := s.lanes[key]; n != nil && n.failed {
			n.failed, had = false, true
			s.dropLane(n)
		}
	}
	return had
}

// FailedKeys returns the keys that were passed to FailKey and not released since, sorted.
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
