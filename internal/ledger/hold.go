package ledger

import (
	"math"

	"github.com/seed41896749/eventbus/backend"
)

// A Hold is a message that this member holds until it is settled or its lease is lost. A run
// is one call of a handler: it may begin after the acknowledgement, and it may last longer
// than its Hold.
//
// The exported fields belong to the caller. Run, Due and Counted are valid while the ledger
// is not in use, or in an effect.
type Hold struct {
	Delivery   backend.Delivery
	Source     *Source
	Attempt    int
	Redriven   bool  // sent again from a dead-letter topic
	Unfit      bool  // to be settled without a run, see [Refuse]
	Suspect    bool  // it ran too often without a result, so at most one suspect runs at a time
	Counted    bool  // it has spent an attempt, which the next GiveBack counts
	Unsure     bool  // a failed call may have settled it
	Tries      uint8 // failed calls to settle it
	Run        any   // the latest run, of the caller
	DeadLetter any   // of the caller: the dead letter to be stored, or nil
	Due        Instant

	asked, came  Instant // when its Receive was called, and returned
	until        Instant // when its lease ends
	began        Instant // when its latest run that has ended began; zero: not known
	dueIfDelayed Instant // when it is due at the latest, if a Delay without an answer took effect
	before       string  // the highest known position before it
	size         int32

	state     state
	lost      bool // its lease is lost
	inSlice   bool // a worker refers to it
	inEffect  bool // an effect refers to it
	extending bool // a call of Extend refers to it
	leaseless bool // acknowledged before its run
	parked    bool // it has no slot of the limiter
	trusted   bool // Ledger.entrusts counts it
	expired   bool // the program may no longer settle it
	late      bool // the timeout of its run has passed
	chases    bool // Ledger.chasing counts it
	returning bool // it is being given back
	left      bool // its lease is not extended any more
	failed    bool // the program, or the timeout, settled it as failed
	class     class
	lane      *lane
	worker    *Worker   // that has it
	over      *overflow // that the GiveBack under way belongs to
	stub      *stub     // of the GiveBack under way
	wait      Wait
	alarm     *alarm
	index     int   // in Ledger.held
	slot      int32 // in the slice of worker
}

// A state is the stage of a Hold between receipt and settlement.
type state uint8

const (
	arrived   state = iota // not decided yet
	waiting                // behind another message of its key, or until it is due
	ready                  // a worker may take it
	taken                  // a worker has it: its handler runs, or is next
	entrusted              // the program settles it after its run
	settling               // a call that settles it is under way, or will be made or repeated; it has one settlement
	released               // no longer held
)

// Holds are allocated in chunks, and used again. A message that is held for long keeps its
// chunk in memory.
const (
	chunk     = 16
	freeHolds = 4096
)

// Fill returns Holds of messages of s, for [Ledger.Put]. It needs the ledger's lock, because the
// handler of an earlier run may still refer to a Hold that another message is about to use.
func (l *Ledger) Fill(s *Source, ds []backend.Delivery) []*Hold {
	n := len(ds)
	hs := make([]*Hold, n)
	for len(l.free) < n {
		some := make([]Hold, chunk)
		for i := range some {
			l.free = append(l.free, &some[i])
		}
	}
	rest := len(l.free) - n
	copy(hs, l.free[rest:])
	clear(l.free[rest:])
	l.free = l.free[:rest]
	for i, h := range hs {
		d := &ds[i]
		*h = Hold{Delivery: *d, Source: s, Attempt: max(d.Attempt, 1), size: int32(min(d.Size(), math.MaxInt32))}
	}
	return hs
}

// recycle lets another message use h, unless somebody may still refer to it: an effect, a call of
// Extend, or the handler of a run that has lost it. Calls of Ack and Delay also refer to h until
// the broker answers, but recycle cannot see them; that is why Release has to come after the
// answer.
func (l *Ledger) recycle(h *Hold) {
	if l.closed || h.late {
		return
	}
	// Other Holds of its chunk, which may be held for long, keep h in memory.
	h.Delivery.Payload, h.Delivery.Headers, h.Delivery.Token = nil, nil, nil
	if !h.inSlice && !h.inEffect && !h.extending && !h.lost && h.Delivery.Err == nil && len(l.free) < freeHolds {
		h.Run, h.DeadLetter, h.wait = nil, nil, nil
		l.free = append(l.free, h)
	}
}

// Size returns the size of the message in bytes.
func (h *Hold) Size() int64 { return int64(h.size) }

// Arrived returns when the message arrived.
func (h *Hold) Arrived() Instant { return h.came }

// Redelivered reports whether the message may have been delivered before, has failed in this
// member before, or is redriven.
func (h *Hold) Redelivered() bool { return h.Attempt > 1 || h.Delivery.Redelivered || h.Redriven }

// Began returns when the latest run of h that has ended began; zero: there was none.
func (h *Hold) Began() Instant { return h.began }

// Leaseless reports whether h was acknowledged before its run.
func (h *Hold) Leaseless() bool { return h.leaseless }

// Returning reports whether h is being given back.
func (h *Hold) Returning() bool { return h.returning }

// addHold adds h to the Holds of l.
func (l *Ledger) addHold(h *Hold) {
	h.index = len(l.held)
	l.held = append(l.held, h)
	h.Source.held++
}

// leave takes h out of its lane, its queue and its alarm, so that no worker takes it and the next
// message of its key may run.
func (h *Hold) leave() {
	l := h.Source.ledger
	switch h.state {
	case ready:
		l.dequeue(h)
	case waiting:
		l.stopWaiting(h)
	}
	if h.alarm != nil {
		l.set(h.alarm, 0)
	}
	h.Source.leaveLane(h)
}

// Release ends the holding of h. A caller that waits for its settlement gets err. An error means
// that h is not settled, so it is due again when its lease has expired. No call that settles h may
// be under way, because another message may use h from now on.
func (l *Ledger) Release(h *Hold, err error) {
	if h.state == released {
		return
	}
	first := h.lane != nil // the next message of its key may be ready now
	few := l.few(l.reserved)
	h.leave()
	if h.trusted {
		h.trusted = false
		l.entrusts--
		l.count(span{h.began, l.Now}, h.failed)
	}
	l.takeFromWorker(h)
	h.state = released
	last := len(l.held) - 1
	l.held[h.index] = l.held[last]
	l.held[h.index].index = h.index
	l.held[last] = nil
	l.held = l.held[:last]
	if l.Out.Freed.Bytes += int64(h.size); h.parked {
		l.withoutSlot--
	} else {
		l.Out.Freed.Settled++
	}
	l.countRelease(h, err)
	h.wait.end(err)
	if err != nil {
		h.Source.remember(h).due(h.until)
	}
	if few && !l.few(l.reserved) {
		l.wakeFetchers()
	} else {
		l.wakeFetcher(h.Source)
	}
	if first {
		l.wakeWorker()
	}
	l.recycle(h)
}

// takeFromWorker takes h from the worker that has it, if any.
func (l *Ledger) takeFromWorker(h *Hold) {
	if h.worker != nil {
		h.worker = nil
		l.running[h.class]--
	}
}
