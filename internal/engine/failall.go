package engine

import (
	"errors"
	"slices"
)

// An OnFailure decides how later events of a key are handled after an event of the key
// failed for good.
type OnFailure uint8

// The values of OnFailure.
const (
	Skip    OnFailure = iota // later events are handled as before
	FailAll                  // later events go to the dead-letter topic without a run
)

// errKeyFailed is the reason to dead-letter an event without a run (FailAll).
var errKeyFailed = unrun(ReasonKeyFailed, errors.New("eventbus: an earlier event of its key has failed for good"))

// notRun returns the reason to dead-letter h without a run; nil: h runs. Without FailAll it
// returns nil, because scheduler.put gives such Holds to no worker.
func (r *runner) notRun(h *Hold) error {
	switch {
	case r.sub.OnFailure != FailAll:
	case h.follows():
		return errKeyFailed
	case h.delivery.Err != nil:
		return unrun(ReasonTooLarge, h.delivery.Err)
	case r.sub.Policy.spent(h):
		return errTooOften(h)
	}
	return nil
}

// follows reports whether FailAll applies to h: an earlier event of its key failed for good.
func (h *Hold) follows() bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return h.lane != nil && h.lane.failed
}

// failKey notes that an event of h's key failed for good, for later events of the key.
func (h *Hold) failKey() {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	if h.lane != nil {
		h.lane.failed = true
		d.lanes.outlive(h.lane)
	}
}

// ReleaseKey ends the effect of FailAll on key: the handler gets later events of key again.
// It reports whether FailAll had an effect on key.
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

// FailedKeys returns the keys of which an event has failed for good (FailAll), sorted.
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
