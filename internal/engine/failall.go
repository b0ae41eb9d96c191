package engine

import (
	"errors"

	"github.com/seed41896749/eventbus/backend"
)

// errKeyFailed is the reason to dead-letter an event without a run (FailAll).
var errKeyFailed = unrun(ReasonKeyFailed, errors.New("eventbus: an earlier event of its key has failed for good"))

// notRun is asked on a worker before the run of h. It returns the reason to settle h without a
// run, as an error that decide turns into the verdict; nil: h runs. Without FailAll it returns
// nil, because no worker gets a Hold that is unfit. In handleEach, OnReceive acknowledges h
// before; FailAll excludes OnReceive.
func (x *runner) notRun(h *Hold) error {
	s := x.sub
	if !s.FailAll {
		return nil
	}
	s.book.lock()
	follows := h.KeyFailed()
	s.book.unlock()
	switch {
	case follows:
		return errKeyFailed
	case h.Delivery.Err != nil:
		return unrun(ReasonTooLarge, h.Delivery.Err)
	case s.Policy.spent(h):
		return errTooOften(h)
	}
	return nil
}

// unfit is asked when h arrives. It reports whether refuse settles h without a worker: its
// Delivery.Err is set, or it is spent, see [Policy.spent]. With FailAll a spent or too large Hold
// keeps its place in its lane, and a worker dead-letters it, see notRun.
func (x *runner) unfit(h *Hold) bool {
	s := x.sub
	if s.FailAll {
		return h.Delivery.Err != nil && !errors.Is(h.Delivery.Err, backend.ErrTooLarge)
	}
	return h.Delivery.Err != nil || s.Policy.spent(h)
}

// ReleaseKey ends the effect of FailAll on key: the handler gets later events of key again.
// It reports whether FailAll had an effect on key.
func (s *Subscription) ReleaseKey(key string) bool {
	s.book.lock()
	defer s.book.unlock()
	return s.book.ReleaseKey(key)
}

// FailedKeys returns the keys of which an event has failed for good (FailAll), sorted.
func (s *Subscription) FailedKeys() []string {
	s.book.lock()
	defer s.book.unlock()
	return s.book.FailedKeys()
}
