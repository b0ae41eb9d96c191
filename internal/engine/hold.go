package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A Hold is a delivery that this member holds until it is settled or its lease is lost. The
// keeper extends its lease from receipt on, whether its handler runs or not.
//
// There is one for every event, so a Hold is small. Its context is a separate object, because
// a handler may keep the context for ever, and would keep the Hold in memory.
type Hold struct {
	read     *read // the Receive that brought it
	delivery backend.Delivery
	ctx      *runCtx
	attempt  int
	size     int64

	tries uint16 // failed calls to settle it; owned by the settler's queue that has it

	// Guarded by the scheduler's lock. Only transition.go changes state.
	lane    *lane // of its key; nil: no event waits for it
	state   state
	working bool // its handler is running
	trusted bool // it counts in ledger.trusted
	lost    bool // its lease is lost
	failed  bool // manual mode: the program settled it as failed
	timing  timing
	until   moment // when its lease ends
	began   moment // when its run began; zero: it has not
	due     moment // when its rest ends, in state resting
	wait    *wait  // for its settlement; nil: no caller waits
}

// A state is the stage of a Hold between receipt and settlement.
type state uint8

const (
	queued     state = iota // behind another Hold of its key
	ready                   // a worker may start it
	confirming              // being acknowledged before it runs (OnReceive)
	running                 // with the handler
	entrusted               // with the program, which settles it (manual mode)
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

// A wait is for a settlement in manual mode, or for the acknowledgement before a run.
type wait struct {
	ended  chan struct{}
	result error // valid once ended is closed
}

func newWait() *wait { return &wait{ended: make(chan struct{})} }

// end ends the wait with err, unless it has ended.
func (w *wait) end(err error) {
	if !isClosed(w.ended) {
		w.result = err
		close(w.ended)
	}
}

// failure returns errNack if the program has settled h as failed, and nil otherwise.
func (h *Hold) failure() error {
	if h.failed {
		return errNack
	}
	return nil
}

// Delivery returns the delivery. It is valid until the handler has returned, or in manual
// mode until settlement.
func (h *Hold) Delivery() *backend.Delivery { return &h.delivery }

// Attempt is the number of the attempt, counted from 1.
func (h *Hold) Attempt() int { return h.attempt }

// Redelivered reports whether the event may have been delivered before, or has failed in this
// member before. It ignores a Snooze in this member, which is not a new delivery.
func (h *Hold) Redelivered() bool { return h.attempt > 1 || h.delivery.Redelivered }

// Subscription returns the Subscription that received h.
func (h *Hold) Subscription() *Subscription { return h.read.sub }

// Context returns the context of the current run. In manual mode it ends with settlement.
func (h *Hold) Context() context.Context { return h.ctx }

func (h *Hold) about() observer.About {
	return observer.About{
		Topic: h.read.sub.Topic, Group: h.read.sub.Group,
		ID: h.delivery.ID, Position: h.delivery.Position, Attempt: h.attempt, Tag: h.ctx.tagged(),
	}
}

// leaseless reports whether h has no lease, because it was acknowledged before its run.
func (h *Hold) leaseless() bool { return h.state == running && h.read.sub.Mode == OnReceive }

// leaseEnd returns when the broker has h due again, at the latest, if no call extends the
// lease. This is after h.until, because the broker counts the lease from a later moment.
func (h *Hold) leaseEnd() moment {
	lease := h.read.sub.Lease
	return h.until.plus(min(lease/3, time.Second))
}
