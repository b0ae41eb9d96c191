// Package ledger decides about the messages that a member of a group holds: which may run, in
// which order, and when each is given back.
//
// It is pure: it has no goroutine, no lock and no clock. Each method records a fact at the time
// that the caller has set in Now, and appends to Out the effects that the caller then carries out.
// One goroutine at a time may therefore use a Ledger.
//
// A [Hold] is a leased message. A [Worker] is a goroutine of the caller that runs handlers. A
// [Source] is one attachment to a group, with its own messages and order. docs/engine.md has a
// table of the files, and says where a change goes.
package ledger

import (
	"math/rand/v2"
	"slices"
	"time"
)

// An Order says which messages have to run one after another.
type Order uint8

// The values of Order.
const (
	ByKey     Order = iota // messages of one key run one after another
	Unordered              // no message waits for another
	Total                  // all messages of a source run one after another
)

// Config of a Ledger. The caller sets every field.
type Config struct {
	Order          Order
	Concurrency    int // workers, without spare ones; Resize changes it
	MaxRedelivered int // the most redelivered messages that run at the same time; 0: no limit
	MaxInFlight    int // the caller's limiter enforces it; the ledger parks by it, see park
	MaxParked      int // Holds that wait without a slot; beyond it nothing more is read
	Lease          time.Duration
	Timeout        time.Duration // bounds a run; 0: none
	Entrusts       bool          // manual mode: the program settles a message after its run
	Single         bool          // a worker takes one message at a time, because its run may wait for the broker or fail its key
	Fenced         bool          // an acknowledgement without an error proves that the message was held

	Batch Batch              // for handlers of batches
	Alone func(h *Hold) bool // h is to be handled in a batch of its own; may be nil

	Leaves func(h *Hold) bool // after a timeout h is left to its lease; may be nil
}

// A Batch says when a worker may take a batch. Without a Size there are no batches.
type Batch struct {
	Size  int
	Bytes int64 // bounds the payloads; 0: no bound
	Wait  time.Duration
}

// A Ledger has all Holds of a subscription.
type Ledger struct {
	Config
	Out Effects
	Now Instant // set by the caller before each use

	alarms          alarms
	held            []*Hold
	free            []*Hold // to be used again
	sources         []*Source
	withReady       []*Source // sources with ready Holds, and perhaps others: see readySources
	waitingFetchers []*Source // sources whose fetcher waits until it may read
	randN           func(n int) int

	closed      bool // no further Hold is started
	interrupted bool // a drain has cancelled the handlers

	workers  int // goroutines, idle ones included
	idle     []*Worker
	busy     []*Worker
	waking   bool // a worker was woken or started, and has not called Take yet
	working  int  // busy workers whose run is not stuck
	stuck    int  // busy workers whose run is stuck
	entrusts int  // Holds with Hold.trusted

	blocked      int // waiting Holds with a slot of MaxInFlight, see park
	parked       int // waiting Holds without a slot
	withoutSlot  int // Holds without a slot, even if they no longer wait
	parkedBytes  int64
	chasing      int           // overflows being given back without a delay, during which nothing is read
	crowded      bool          // nothing is read until fewer Holds are parked
	running      [classes]int  // Holds of each class that a worker has
	readyByClass [classes]int  // Holds of each class in the lines of all sources
	reserved     int           // Source.asked of all sources
	average      time.Duration // of a run; 0: not measured
	readTime     time.Duration // average length of a Receive that returned all it asked for

	wakeNow int // not 0: wakeWorker wakes a worker even for little work

	leases      alarm // the first lease ends
	extension   alarm // leases are to be extended
	flush       alarm // acknowledgements have waited long enough for further ones
	unclaimed   alarm // ready Holds may have waited too long for a worker
	batchDue    alarm // a batch that is not full is due
	delayedWake alarm // wakes a worker for little work
}

// New returns an empty Ledger.
func New(c Config) *Ledger {
	l := &Ledger{Config: c, randN: rand.IntN}
	l.leases.ring, l.extension.ring, l.flush.ring = l.expireLeases, l.extend, l.flushAcks
	l.delayedWake.ring = l.wakeDelayed
	l.unclaimed.ring, l.batchDue.ring = l.giveBackUnclaimed, func(Instant) { l.wakeWorker() }
	return l
}

// Stats are the current numbers of a Ledger.
type Stats struct {
	Held, Running, Stuck, Parked int
	Spare                        int // how many workers may run in place of stuck ones
	Bytes                        int64
	Crowded                      bool // nothing is read until fewer are parked
}

// Stats returns the current numbers.
func (l *Ledger) Stats() Stats {
	n := Stats{Held: len(l.held), Running: l.working + l.stuck, Stuck: l.stuck, Spare: l.spare(), Parked: l.parked, Crowded: l.crowded}
	for _, h := range l.held {
		n.Bytes += int64(h.size)
	}
	return n
}

// Closed reports whether Close was called.
func (l *Ledger) Closed() bool { return l.closed }

// Settling returns how many Holds are being settled.
func (l *Ledger) Settling() (n int) {
	for _, h := range l.held {
		if h.state == settling {
			n++
		}
	}
	return n
}

// Interrupted reports whether Interrupt was called.
func (l *Ledger) Interrupted() bool { return l.interrupted }

// Quiet reports whether nothing is left to do: l is closed, no worker has a run, and the program
// has no message to settle.
func (l *Ledger) Quiet() bool {
	return l.closed && len(l.busy) == 0 && l.entrusts == 0 && !l.finishes()
}

// Close lets no further Hold start, and gives back the Holds that have not started. Batches that
// are waiting to fill up are still handled.
func (l *Ledger) Close() {
	l.closed = true
	l.giveBackUnstarted(nil, l.Batch.Size > 0)
	l.Out.Wake, l.idle = append(l.Out.Wake, l.idle...), nil // they end, or take the last batches
	l.wakeWorker()
}

// finishes reports whether a batch is left that is handled although l is closed.
func (l *Ledger) finishes() bool {
	return l.Batch.Size > 0 && !l.interrupted && l.startable() > 0
}

// giveBackUnstarted gives back the Holds of s that have not started, or those of all sources if s
// is nil. All Holds of a lane are due when its first one is. If keep is set, ready Holds stay.
func (l *Ledger) giveBackUnstarted(s *Source, keep bool) {
	for _, w := range l.busy {
		l.steal(w)
	}
	all := slices.Clone(l.held)
	due := map[*lane]Instant{}
	for _, h := range all {
		if h.lane != nil {
			due[h.lane] = h.lane.retry()
		}
	}
	for _, h := range all {
		if (s == nil || h.Source == s) && (h.state == waiting || h.state == ready && !keep) {
			at := max(h.Due, due[h.lane])
			if h.returnsAtOnce() {
				at = l.Now
				h.Counted = h.Attempt > max(h.Delivery.Attempt, 1) // it has failed here, and rests
			}
			l.giveBack(h, at)
		}
	}
}

// Interrupt ends the contexts of all runs, and of the Holds that the program settles.
func (l *Ledger) Interrupt(cause error) {
	l.interrupted = true
	if l.closed {
		l.giveBackUnstarted(nil, false)
	}
	for _, h := range l.held {
		if h.state == taken || h.state == entrusted {
			l.do(Effect{Kind: EndRun, Run: h.Run, Err: cause})
		}
	}
	for _, w := range l.busy {
		if w.stuck {
			l.do(Effect{Kind: EndRun, Run: w.lostRun, Err: cause})
		}
	}
}

// Abandon releases all Holds, and returns how many of them no handler runs.
func (l *Ledger) Abandon(cause error) (unsettled int) {
	for _, h := range slices.Clone(l.held) {
		if h.state != taken {
			unsettled++
		}
		h.lost = true
		l.Release(h, cause)
	}
	return unsettled
}
