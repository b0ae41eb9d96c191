package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A Hold is a delivery that is this member's until it is settled or its lease is
// lost. Its lease is kept from receipt on, whether its handler runs or not.
//
// There is one for every event, so a Hold is small. Its context is not part of it, because
// a handler may keep the context for ever.
type Hold struct {
	read     *read // the Receive that brought it
	delivery backend.Delivery
	ctx      *runCtx
	attempt  int
	size     int64

	tries uint16 // failed calls to settle it; used by the queue that has it

	// Guarded by the scheduler's lock. Only transition.go changes state.
	lane    *lane // of its key; nil: nothing waits for it
	state   state
	working bool // its handler is running
	trusted bool // the scheduler counts it in trusted
	lost    bool // its lease
	failed  bool // manual mode: its settlement
	timing  timing
	until   moment // its lease runs to here
	began   moment // its run
	due     moment // of a retry that waits here
	wait    *wait  // of a caller, for the settlement
}

// A state is the stage of a Hold between receipt and settlement.
type state uint8

const (
	queued     state = iota // behind another Hold of its key
	ready                   // a worker may start it
	confirming              // acknowledged on receipt, before it runs
	running                 // with the handler
	entrusted               // with the program, which settles it (manual mode)
	resting                 // a retry that waits here for its due moment
	settling                // an acknowledgement or a dead letter is under way
	returning               // a Delay is under way
	released                // no longer held
)

// A timing compares a run with its Timeout.
type timing uint8

const (
	inTime  timing = iota
	late           // the Timeout has passed
	expired        // and the bus took the event back from the program
	stuck          // and the handler still does not return, which the observer was told
)

// A wait is for a settlement (manual mode), or for the acknowledgement on receipt.
type wait struct {
	ended  chan struct{}
	result error // valid once ended is closed
}

func newWait() *wait { return &wait{ended: make(chan struct{})} }

// end ends the wait, once.
func (w *wait) end(err error) {
	if !isClosed(w.ended) {
		w.result = err
		close(w.ended)
	}
}

// failure returns an error if the program has settled h as failed.
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

// Redelivered reports whether a member of the group may have had the event before. An event
// that rests here between two runs is delivered once.
func (h *Hold) Redelivered() bool { return h.attempt > 1 || h.delivery.Redelivered }

// Subscription returns the Subscription that received it.
func (h *Hold) Subscription() *Subscription { return h.read.sub }

// Context returns the context of the current run. In manual mode it ends with settlement.
func (h *Hold) Context() context.Context { return h.ctx }

func (h *Hold) about() observer.About {
	return observer.About{
		Topic: h.read.sub.Topic, Group: h.read.sub.Group,
		ID: h.delivery.ID, Position: h.delivery.Position, Attempt: h.attempt, Tag: h.ctx.tagged(),
	}
}

// leaseless reports whether h was acknowledged before its run and so has no lease any
// more.
func (h *Hold) leaseless() bool { return h.state == running && h.read.sub.Mode == OnReceive }

// leaseEnd is when h is due again at the latest, if nobody extends its lease. The broker
// began the lease up to a moment later than this member counts.
func (h *Hold) leaseEnd() moment {
	lease := h.read.sub.Lease
	return h.until.plus(min(lease/3, time.Second))
}
