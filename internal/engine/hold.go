package engine

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A Hold is a delivery that is ours until its lease runs out or it is settled.
// Its lease is kept from receipt on, whether it runs or not.
//
// There is one for every event, so it is kept small, and its memory used again
// once nobody knows it any more (see over). The context is not part of it, as a
// handler may keep that for ever.
type Hold struct {
	read     *read // that brought it
	delivery backend.Delivery
	ctx      *runCtx
	attempt  int
	size     int64

	// Guarded by the desk's lock.
	stage     stage
	lane      laneStage
	working   bool   // a handler is running
	inTrust   bool   // counted as entrusted
	expired   bool   // taken back from the program when its time was over
	isAcked   bool   // on receipt: it has no lease any more
	lost      bool   // the lease
	cameAgain bool   // another receipt of it is here, or was
	late      bool   // the timeout has passed
	stuck     bool   // and that was told
	failed    bool   // the run
	until     moment // the lease runs to here
	began     moment // the run
	due       moment // of a retry that waits here
	took      time.Duration
	wait      *wait // of somebody for what becomes of it
}

// A wait is for a settlement (manual mode), or for the acknowledgement on receipt.
type wait struct {
	receipt bool
	ended   chan struct{}
	result  error // valid once ended is closed
}

// end ends the wait.
func (w *wait) end(err error) {
	w.result = err
	close(w.ended)
}

// A stage is where a Hold is on its way.
type stage uint8

const (
	unstarted stage = iota // ready, or behind its key, or suspect
	running                // with the handler
	entrusted              // with the program, which settles it (manual mode)
	resting                // a retry that waits here, as it cannot wait in the backend
	settling               // decided; an ack or a dead letter is on its way
	returning              // decided; a delay is on its way
	released               // no longer ours
)

// A laneStage is where a Hold is in the lane of its key.
type laneStage uint8

const (
	laneless laneStage = iota
	queued
	admitted
)

// A read is what one Receive brought: its holds are allocated together.
type read struct {
	sub        *Subscription
	attachment *attachment
	holds      []Hold
	left       int  // not released
	plain      int  // ran, and were acknowledged: nothing else ever came of them
	news       bool // some came for the first time: what comes back would have come before
	listed     bool // whoever has the list may look at a Hold later
	index      int  // in the desk's list
}

// An attachment is a source with what it can do. A subscription gets a new one
// when its group was lost.
type attachment struct {
	source   backend.Source
	delayer  backend.Delayer  // nil if it cannot
	extender backend.Extender // nil if it cannot
}

// Delivery returns the delivery, until the handler has returned; in manual mode
// until settlement. Headers and Payload are the handler's to keep and to change.
func (h *Hold) Delivery() *backend.Delivery { return &h.delivery }

// Attempt is which attempt this is, counting from 1.
func (h *Hold) Attempt() int { return h.attempt }

// Subscription returns the one that holds it.
func (h *Hold) Subscription() *Subscription { return h.read.sub }

// Context is that of the current run. In manual mode it ends with settlement.
func (h *Hold) Context() context.Context { return h.ctx }

func (h *Hold) about() observer.About {
	return observer.About{
		Topic: h.read.sub.Topic, Group: h.read.sub.Group,
		ID: h.delivery.ID, Position: h.delivery.Position, Attempt: h.attempt,
	}
}

// leaseFrom is the moment from which the leases are counted of what a Receive
// brought that was asked for at the given moment: then, as they began between that
// and the answer. But a Receive may have waited for hours, and an answer is not
// under way for longer than inTransit.
func (s *Subscription) leaseFrom(asked time.Time) time.Time {
	if earliest := time.Now().Add(-s.inTransit()); asked.Before(earliest) {
		return earliest
	}
	return asked
}

// inTransit is how much later than ours the backend's idea of a lease may end.
func (s *Subscription) inTransit() time.Duration { return min(s.Lease/3, time.Second) }

// hold takes what a Receive brought, which is lent.
func (s *Subscription) hold(a *attachment, ds []backend.Delivery, from time.Time) *read {
	r := s.newRead(a, len(ds))
	until := s.moment(from.Add(s.Lease))
	for i := range ds {
		h := &r.holds[i]
		h.delivery, h.until = ds[i], until
		h.size = int64(ds[i].Size())
		h.attempt = s.attempts.of(&ds[i])
	}
	clear(ds) // or what is lent would keep payloads until the next Receive
	return r
}
