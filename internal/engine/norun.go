package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// errElsewhere is the Delivery.Err of an event that was redriven from another group's dead letters.
// This group acknowledges it without a run.
var errElsewhere = errors.New("eventbus: the event was sent again for another group")

// refuse settles h, which is unfit, without a run. Its Delivery.Err decides whether it is
// acknowledged or dead-lettered.
func (s *Subscription) refuse(h *Hold) {
	t, err := consumerOf(h).settler, h.Delivery.Err
	switch {
	case err == nil:
		t.deadLetters.bury(h, ReasonNoVerdict, errTooOften(h))
	case errors.Is(err, errElsewhere):
		t.ackUnhandled(h)
	case errors.Is(err, backend.ErrTooLarge):
		t.deadLetters.bury(h, ReasonTooLarge, unrun(ReasonTooLarge, err))
	case errors.Is(err, backend.ErrGone):
		s.notifier.failed(observer.Decode, s.aboutHold(h, nil), 1, err)
		s.discarded(s.aboutLive(h, nil), ReasonGone, err)
		t.ackUnhandled(h)
	default:
		s.notifier.failed(observer.Decode, s.aboutHold(h, nil), 1, err)
		t.deadLetters.bury(h, ReasonUnreadable, unrun(ReasonUnreadable, err))
	}
}

// errKeyFailed is the reason to dead-letter an event without a run (FailAll).
var errKeyFailed = unrun(ReasonKeyFailed, errors.New("eventbus: an earlier event of its key has failed for good"))

// mostHanging limits how many runs of one event may hang in this member, so that an event whose
// handler never returns doesn't occupy all handlers. Further attempts fail without a run.
const mostHanging = 3

// notRun is called by a worker before it runs r. It returns nil if r should run. Otherwise it
// returns an error saying why not, which decide turns into a verdict. Without FailAll, no worker
// gets an unfit Hold. In OnReceive mode handleEach has already acknowledged the Hold; FailAll can't
// be combined with OnReceive.
func (s *Subscription) notRun(r *Run) error {
	h := r.hold
	if r.hanging >= mostHanging {
		return &observer.NotRunError{Err: fmt.Errorf("eventbus: %d runs of the event have not returned: %w", r.hanging, s.timeout)}
	}
	if !s.FailAll {
		return nil
	}
	s.ledger.lock()
	follows := h.KeyFailed()
	s.ledger.unlock()
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

// unfit is called when h arrives. It reports whether h is unfit: refuse must settle it without a
// worker, because its Delivery.Err is set or it is spent (see [Policy.spent]). With FailAll, a Hold
// that is spent or too large keeps its position in its lane instead, and a worker dead-letters it
// (see notRun).
func (s *Subscription) unfit(h *Hold) bool {
	if s.FailAll {
		return h.Delivery.Err != nil && !errors.Is(h.Delivery.Err, backend.ErrTooLarge)
	}
	return h.Delivery.Err != nil || s.Policy.spent(h)
}
