package engine

import (
	"errors"
	"slices"
)

// An OnFailure decides how the later events of a key are handled after one has failed for
// good.
type OnFailure uint8

// The choices.
const (
	Skip    OnFailure = iota // they are handled
	FailAll                  // they follow it to the dead-letter topic
)

// errKeyFailed is why an event goes to the dead-letter topic without a run.
var errKeyFailed = errors.New("eventbus: an earlier event of its key has failed for good")

// notRun returns why h is not to be run, if so (FailAll).
func (r *runner) notRun(h *Hold) error {
	switch {
	case r.sub.OnFailure != FailAll:
	case h.follows():
		return errKeyFailed
	case r.sub.Policy.spent(h):
		return errTooOften(h)
	}
	return nil
}

// follows reports whether h follows an event of its key that failed for good.
func (h *Hold) follows() bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return h.lane != nil && h.lane.failed
}

// failKey lets the later events of h's key follow h.
func (h *Hold) failKey() {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	if h.lane != nil {
		h.lane.failed = true
	}
}

// ReleaseKey lets later events of key run again after one has failed for good
// (FailAll). It reports whether there was one.
func (s *Subscription) ReleaseKey(key string) bool {
	d := &s.sched
	d.mu.Lock()
	defer d.unlock()
	l := d.lanes.byKey[key]
	if l == nil || !l.failed {
		return false
	}
	l.failed = false
	d.lanes.drop(l)
	return true
}

// FailedKeys lists the keys of which an event has failed for good (FailAll), sorted.
func (s *Subscription) FailedKeys() (keys []string) {
	d := &s.sched
	d.mu.Lock()
	defer d.unlock()
	for key, l := range d.lanes.byKey {
		if l.failed {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
