// Package ledger decides which of the messages that a group member holds may run, in which order,
// and when each of them is given back.
//
// It is purely computational: it has no goroutines, no locks and no clock. Each method records
// something that happened at the time the caller has set in Now, and appends to Out the effects
// that the caller must carry out. A Ledger is therefore not safe for concurrent use.
//
// A [Hold] is a leased message. A [Worker] is a goroutine of the caller that runs handlers. A
// [Source] is one attachment to a group, with its own messages and its own order. docs/engine.md
// lists the files and says where to make a change.
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

// Config configures a Ledger. The caller sets every field.
type Config struct {
	Order          Order
	Concurrency    int // how many workers there are, not counting spare ones; Resize changes it
	MaxRedelivered int // how many redelivered messages may run at the same time; 0 for no limit
	MaxInFlight    int // enforced by the caller's limiter; the ledger uses it to decide when to park, see park
	MaxParked      int // how many Holds may wait without a slot before reading stops
	Lease          time.Duration
	Timeout        time.Duration // limits each run; 0 for no limit
	Entrusts       bool          // manual mode: the program settles a message after its run
	Single         bool          // a worker takes one message at a time, because its run may wait for the broker or fail its key
	Fenced         bool          // an acknowledgement that succeeds proves that the message was still held

	Batch Batch              // for handlers of batches
	Alone func(h *Hold) bool // reports whether h needs a batch of its own; may be nil

	Leaves func(h *Hold) bool // reports whether h is left to its lease after a timeout; may be nil
}

// A Batch says when a worker may take a batch. If Size is 0 there are no batches.
type Batch struct {
	Size  int
	Bytes int64 // limits the total size of the payloads; 0 for no limit
	Wait  time.Duration
}

// A Ledger keeps all Holds of a subscription.
type Ledger struct {
	Config
	Out Effects
	Now Instant // set by the caller before each use

	alarms          alarms
	held            []*Hold
	free            []*Hold // for reuse
	sources         []*Source
	withReady       []*Source // sources with ready Holds, and perhaps others; see readySources
	waitingFetchers []*Source // sources whose fetcher waits for permission to read
	randN           func(n int) int

	closed      bool // no more Holds are started
	interrupted bool // a drain has cancelled the handlers

	workers  int // goroutines, including idle ones
	idle     []*Worker
	busy     []*Worker
	waking   bool // a worker was woken or started but has not called Take yet
	working  int  // busy workers whose run isn't stuck
	stuck    int  // busy workers whose run is stuck
	entrusts int  // Holds that the program is to settle, see Hold.trusted

	blocked      int // waiting Holds that have a slot of MaxInFlight, see park
	parked       int // waiting Holds that have no slot
	withoutSlot  int // Holds without a slot, including those that no longer wait
	parkedBytes  int64
	chasing      int           // overflows being given back without a delay; nothing is read until they are
	crowded      bool          // too many Holds are parked, so nothing is read until some of them have left
	running      [classes]int  // Holds of each class that workers have
	readyByClass [classes]int  // ready Holds of each class, in the queues of all sources
	reserved     int           // Source.reserved of all sources
	average      time.Duration // length of a run; 0 if none was measured
	readTime     time.Duration // average length of a Receive that returned everything it asked for

	wakeNow int // if not 0, wakeWorker wakes a worker even for little work

	leases      alarm // the first lease expires
	extension   alarm // leases are due for extension
	flush       alarm // acknowledgements have waited long enough for more to join them
	unclaimed   alarm // ready Holds may have waited too long for a worker
	batchDue    alarm // a partly filled batch is due
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

// Stats holds the current numbers of a Ledger.
type Stats struct {
	Held, Running, Stuck, Parked int
	Spare                        int // how many workers may run in place of stuck ones
	Bytes                        int64
	Crowded                      bool // nothing is read until fewer Holds are parked
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

// Quiet reports whether nothing is left to do: l is closed, no worker is running anything, and the
// program has no message left to settle.
func (l *Ledger) Quiet() bool {
	return l.closed && len(l.busy) == 0 && l.entrusts == 0 && !l.finishes()
}

// Close stops the ledger from starting Holds and gives back those that haven't started. Batches
// that are waiting to fill up are still handled.
func (l *Ledger) Close() {
	l.closed = true
	l.giveBackUnstarted(nil, l.Batch.Size > 0)
	l.Out.Wake, l.idle = append(l.Out.Wake, l.idle...), nil // they end, or take the last batches
	l.wakeWorker()
}

// finishes reports whether a batch is left that must be handled even though l is closed.
func (l *Ledger) finishes() bool {
	return l.Batch.Size > 0 && !l.interrupted && l.startable() > 0
}

// giveBackUnstarted gives back the Holds of s that haven't started, or those of all sources if s is
// nil. All Holds of a lane become due together with its first one. If keep is set, Holds that are
// ready are not given back.
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
				h.Counted = h.Attempt > max(h.Delivery.Attempt, 1) // it has failed here and waits for its retry
			}
			l.giveBack(h, at)
		}
	}
}

// Interrupt ends the contexts of all runs, and of the Holds that the program has yet to settle.
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

// Abandon releases all Holds, and returns how many of them had no handler running.
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
