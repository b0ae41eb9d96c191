package ledger

import (
	"math"

	"github.com/seed41896749/eventbus/backend"
)

// A Hold is a message that this member holds until it is settled or its lease is lost. A run is one
// call of a handler. It may start only after the message was acknowledged, and it may outlast its
// Hold.
//
// The exported fields belong to the caller. Run, Due and Counted are valid in an effect, and
// whenever no method of the ledger is running.
type Hold struct {
	Delivery   backend.Delivery
	Source     *Source
	Attempt    int
	Redriven   bool  // republished from a dead-letter topic
	Unfit      bool  // must be settled without a run, because it can't be read or was delivered too often; see [Refuse]
	Suspect    bool  // delivered so often without the result of a run that it may be crashing the process, so only one suspect runs at a time
	Counted    bool  // it has used up an attempt, which the next GiveBack must count
	Unsure     bool  // a failed call may have settled it
	Tries      uint8 // how many calls to settle it have failed
	Run        any   // the latest run; a value of the caller
	DeadLetter any   // the caller's dead letter that is yet to be stored, or nil
	Due        Instant

	asked, came  Instant // when its Receive was called and when it returned
	until        Instant // when its lease ends
	began        Instant // when its latest finished run started; zero if unknown
	dueIfDelayed Instant // the latest time at which it is due if an unanswered Delay took effect
	before       string  // the highest known position before its own
	size         int32

	state     state
	lost      bool // its lease is lost
	inSlice   bool // in the slice of a worker
	inEffect  bool // an effect refers to it
	extending bool // an Extend call refers to it
	leaseless bool // acknowledged before its run
	parked    bool // it waits without a slot of the limiter
	trusted   bool // counted in Ledger.entrusts
	expired   bool // the program may no longer settle it
	late      bool // the timeout of its run has passed
	chases    bool // counted in Ledger.chasing
	returning bool // it is being given back
	left      bool // its lease is no longer extended
	failed    bool // the program or the timeout settled it as failed
	class     class
	lane      *lane
	worker    *Worker   // the worker that has it, if any
	over      *overflow // the overflow that is being given back with it, if any
	stub      *stub     // its stub, while it is being given back
	wait      Wait
	alarm     *alarm
	index     int   // in Ledger.held
	slot      int32 // its index in the slice of worker
}

// A state is the stage of a Hold between receipt and settlement.
type state uint8

const (
	arrived   state = iota // not decided yet
	waiting                // behind another message with its key, or until it is due
	ready                  // a worker may take it
	taken                  // a worker has it: its handler is running or about to
	entrusted              // its run is over, and the program is to settle it
	settling               // a call that settles it is under way or planned; it is settled only once
	released               // no longer held
)

// Holds are allocated in chunks and reused. A message that is held for a long time keeps its whole
// chunk in memory.
const (
	chunk     = 16
	freeHolds = 4096
)

// Fill returns Holds for messages of s, to be passed to [Ledger.Put]. Call it under the ledger's
// lock: the handler of an earlier run may still refer to a Hold that Fill is about to reuse.
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

// recycle makes h available for reuse, unless something still refers to it: an effect, an Extend
// call, or the handler of a run that has lost it. Ack and Delay calls refer to h, too, until the
// broker answers. recycle can't see those, which is why Release must come after the answer.
func (l *Ledger) recycle(h *Hold) {
	if l.closed || h.late {
		return
	}
	// other Holds of its chunk, which may be held for a long time, keep h in memory
	h.Delivery.Payload, h.Delivery.Headers, h.Delivery.Token = nil, nil, nil
	if !h.inSlice && !h.inEffect && !h.extending && !h.lost && h.Delivery.Err == nil && len(l.free) < freeHolds {
		h.Run, h.DeadLetter, h.wait = nil, nil, nil
		l.free = append(l.free, h)
	}
}

// Size returns the size of the message, in bytes.
func (h *Hold) Size() int64 { return int64(h.size) }

// Arrived returns when the message arrived.
func (h *Hold) Arrived() Instant { return h.came }

// Redelivered reports whether the message may have been delivered before, has already failed in
// this member, or was redriven.
func (h *Hold) Redelivered() bool { return h.Attempt > 1 || h.Delivery.Redelivered || h.Redriven }

// Began returns when the latest finished run of h started, or zero if there is none.
func (h *Hold) Began() Instant { return h.began }

// Leaseless reports whether h was acknowledged before its run.
func (h *Hold) Leaseless() bool { return h.leaseless }

// Returning reports whether h is being given back.
func (h *Hold) Returning() bool { return h.returning }

// addHold adds h to the Holds of the ledger.
func (l *Ledger) addHold(h *Hold) {
	h.index = len(l.held)
	l.held = append(l.held, h)
	h.Source.held++
}

// leave removes h from its lane, its queue and its alarm. No worker takes h after that, and the
// next message with its key may run.
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

// Release stops holding h. A caller that waits for its settlement gets err. A non-nil err means
// that h isn't settled, so it is redelivered when its lease expires. No call that settles h may
// still be under way, because h can be reused from now on.
func (l *Ledger) Release(h *Hold, err error) {
	if h.state == released {
		return
	}
	first := h.lane != nil // the next message with the key may be ready now
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

// takeFromWorker takes h away from its worker, if it has one.
func (l *Ledger) takeFromWorker(h *Hold) {
	if h.worker != nil {
		h.worker = nil
		l.running[h.class]--
	}
}
