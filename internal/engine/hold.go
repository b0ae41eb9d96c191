package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A Hold is a delivery that this member holds until it is settled or its lease is lost. The
// keeper extends its lease from receipt on, whether its handler runs or not.
//
// Every event has a Hold, so a Hold is small. Its context is a separate object, because a
// handler may keep the context for ever. If the context were part of the Hold, such a
// handler would also keep the Hold in memory.
type Hold struct {
	read     *read // the Receive that brought it
	delivery backend.Delivery
	ctx      *runCtx
	attempt  int
	size     int64

	redriven bool  // sent again from a dead-letter topic
	tries    uint8 // failed calls to settle it, at most mostTries; used by one queue of the settler at a time

	// Guarded by the scheduler's lock. Only transition.go changes state.
	state   state
	working bool // its handler is running
	trusted bool // ledger.trusted counts it
	lost    bool // its lease is lost
	failed  bool // manual mode: the program settled it as failed
	timing  timing
	lane    *lane  // the lane of its key; nil: it is in no lane
	until   moment // when its lease ends
	began   moment // when its run began; zero: it has not
	due     moment // when a worker may start it again, in state resting
	wait    wait   // the wait for its settlement; nil: no caller waits
	heir    *Hold  // the Hold to which rest has passed the delivery; nil: none
}

// A state is the stage of a Hold between receipt and settlement.
type state uint8

const (
	queued     state = iota // it waits behind another Hold of its key
	ready                   // a worker may start it
	confirming              // being acknowledged before it runs (OnReceive)
	running                 // its handler runs
	entrusted               // the program settles it after its run (manual mode)
	resting                 // a retry that waits in this member until it is due
	settling                // an acknowledgement or a dead letter is under way
	returning               // being given back by Delay
	released                // no longer held
)

// A timing compares a run with Config.Timeout.
type timing uint8

const (
	inTime  timing = iota
	late           // the Timeout has passed
	expired        // late, and the program may no longer settle the event (manual mode)
	stuck          // late, and the handler has not returned stuckAfter later
)

// A wait gets the result of a settlement: for a caller (manual mode), or for a worker that
// waits for the acknowledgement before a run.
type wait chan error

func newWait() wait { return make(wait, 1) }

// end ends the wait with the result err, unless w is nil. Only the first call has an effect.
func (w wait) end(err error) {
	select {
	case w <- err:
	default:
	}
}

// failure returns errNack if the program has settled h as failed, and nil otherwise.
func (h *Hold) failure() error {
	if h.failed {
		return errNack
	}
	return nil
}

// Delivery returns the delivery. It is valid until the handler has returned; in manual
// mode, until settlement.
func (h *Hold) Delivery() *backend.Delivery { return &h.delivery }

// Attempt returns the number of the attempt, counted from 1.
func (h *Hold) Attempt() int { return h.attempt }

// Redelivered reports whether the event may have been delivered before, has failed in this
// member before, or is redriven. It ignores a Snooze in this member, which is not a new
// delivery.
func (h *Hold) Redelivered() bool { return h.attempt > 1 || h.delivery.Redelivered || h.redriven }

// Subscription returns the Subscription that received h.
func (h *Hold) Subscription() *Subscription { return h.read.sub }

// Context returns the context of the current run. In manual mode settlement ends the
// context.
func (h *Hold) Context() context.Context { return h.ctx }

// present returns the Hold that has the delivery of h now, because ledger.rest replaces h.
// The caller holds the scheduler's lock.
func (h *Hold) present() *Hold {
	for h.heir != nil {
		h = h.heir
	}
	return h
}

func (h *Hold) about() observer.About {
	return observer.About{
		Topic: h.read.sub.Topic, Group: h.read.sub.Group,
		ID: h.delivery.ID, Position: h.delivery.Position, Attempt: h.attempt, Tag: h.ctx.tagged(),
	}
}

// begin notes that the run of h begins at now, and prepares its context. If a drain
// has interrupted the handlers, begin also cancels the context with ErrShutdown.
func (h *Hold) begin(now time.Time, interrupted bool) {
	s, deadline := h.read.sub, moment(0)
	h.began = s.moment(now)
	if s.Timeout > 0 {
		deadline = s.moment(now.Add(s.Timeout)) // time.Time.Sub never overflows
	}
	h.ctx.begin(&s.ground, deadline)
	if interrupted {
		h.ctx.cancel(ErrShutdown)
	}
}

// unfit reports whether h is settled without a worker: its Delivery.Err is set, or it is
// spent, see [Policy.spent]. With FailAll a spent or too large Hold keeps its place in its
// lane, and a worker dead-letters it, see runner.notRun.
func (h *Hold) unfit() bool {
	s := h.read.sub
	if s.OnFailure == FailAll {
		return h.delivery.Err != nil && !errors.Is(h.delivery.Err, backend.ErrTooLarge)
	}
	return h.delivery.Err != nil || s.Policy.spent(h)
}

// leaseless reports whether h has no lease, because it was acknowledged before its run.
func (h *Hold) leaseless() bool { return h.state == running && h.read.sub.Mode == OnReceive }

// leaseEnd returns a moment at which the broker has surely made h due again, if no call
// extends the lease. This moment is after h.until, which counts the lease from the start of
// a call of Receive or Extend. The broker counts the lease from a later moment.
func (h *Hold) leaseEnd() moment {
	lease := h.read.sub.Lease
	return h.until.plus(min(lease/3, time.Second))
}
