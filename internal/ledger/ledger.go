// Package ledger decides about the messages that a member of a group holds: which may run,
// in which order, and when each is given back. It is pure. It has no goroutine, no lock and
// no clock: each method notes a fact at a moment, and appends to Out the effects that the
// caller carries out. So one goroutine at a time may use a Ledger.
//
// docs/engine.md says where a change goes.
//
// A [Hold] is a leased message. A [Worker] is a goroutine of the caller that runs handlers. A
// [Source] is one attachment to a group, with its own messages and order.
//
//	hold.go      the states of a Hold; Release and Lose end it
//	source.go    messages arrive, of one or more sources
//	room.go      how many more are wanted, and whose fetcher may read
//	lane.go      the order of a key (stub.go: messages that are away; park.go: too many that wait)
//	line.go      which Hold is next
//	worker.go    workers take Holds (slice.go), and report results (runs.go)
//	settle.go    Holds are acknowledged, given back, or rest (lease.go)
//	memory.go    attempts and positions of messages that are not held
//	sole.go      sources whose messages no other member gets
//	clock.go     the alarms: one heap of moments
package ledger

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

// An Order says which messages run one after another.
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
	MaxParked      int // Holds that wait without a place; beyond it nothing more is read
	Lease          time.Duration
	Timeout        time.Duration // bounds a run; 0: none
	Entrusts       bool          // manual mode: the program settles a message after its run
	Single         bool          // a worker takes one message at a time, because its run may wait for the broker or fail its key
	Fenced         bool          // an acknowledgement without an error proves that the message was held

	Batch Batch              // for handlers of batches
	Alone func(h *Hold) bool // h is to be handled in a batch of its own; may be nil

	Leaves func(h *Hold) bool // after a timeout h is left to its lease; may be nil
}

// A Batch says when a worker may take a batch. Size 0: there are no batches.
type Batch struct {
	Size  int
	Bytes int64 // bounds the payloads; 0: no bound
	Wait  time.Duration
}

// A Ledger has all Holds of a subscription.
type Ledger struct {
	Config
	Out Effects
	Now Moment // set by the caller before each use

	alarms  alarms
	held    []*Hold
	free    []*Hold // to be used again
	sources []*Source
	lines   []*Source // sources with Holds in their line, and perhaps others: see lining
	waiting []*Source // sources whose fetcher waits for room
	dice    func(n int) int

	closed      bool // no further Hold is started
	interrupted bool // a drain has cancelled the handlers

	workers  int // goroutines, idle ones included
	idle     []*Worker
	busy     []*Worker
	waking   bool // a worker was woken or started, and has not called Take yet
	working  int  // busy workers whose run is not stuck
	stuck    int  // busy workers whose run is stuck
	entrusts int  // Holds with Hold.trusted

	blocked     int // waiting Holds that have a place, see park
	parked      int // waiting Holds without a place
	placeless   int // Holds without a place, even if they no longer wait
	parkedBytes int64
	chasing     int           // overflows that are given back without a delay; nothing is read meanwhile
	crowded     bool          // nothing is read until fewer Holds are parked
	running     [classes]int  // Holds of each class that a worker has
	lined       [classes]int  // Holds of each class in the lines of all sources
	asked       int           // Source.asked of all sources
	average     time.Duration // of a run; 0: not measured
	reading     time.Duration // average length of a Receive that returned all it asked for

	hurry int // not 0: rouse wakes a worker for little work too

	leases    alarm // the first lease ends
	extension alarm // leases are to be extended
	flush     alarm // acknowledgements have gathered for long enough
	hoard     alarm // Holds may have waited for a worker for too long
	gather    alarm // a batch that is not full is due
	nudge     alarm // a worker is woken for little work
}

// New returns an empty Ledger.
func New(c Config) *Ledger {
	l := &Ledger{Config: c, dice: rand.IntN}
	l.leases.ring, l.extension.ring, l.flush.ring = l.expireLeases, l.extend, l.flushAcks
	l.nudge.ring = l.wakeAnother
	l.hoard.ring, l.gather.ring = l.giveBackHoard, func(Moment) { l.rouse() }
	return l
}

// An Effect is an action that the caller of a Ledger carries out.
type Effect struct {
	Kind    Kind
	Hold    *Hold
	Run     any     // for EndRun
	Source  *Source // for EndRead, Room and Emptied
	Running bool    // for Lost and Stuck: a handler runs
	Err     error
	For     time.Duration
}

// A Kind is a kind of Effect.
type Kind uint8

// The kinds of Effect.
const (
	GiveBack Kind = iota // Hold is to be given back by Delay, as Hold.Due and Hold.Counted say
	Refuse               // Hold is to be settled without a run: it is unfit
	TimedOut             // Hold is to be settled as a run that timed out; nobody else settles it
	Again                // the call that settles Hold is to be repeated
	EndRun               // the context of Run is to end with Err
	Lost                 // the lease of Hold is lost, because of Err; nil: it was not extended
	Stuck                // the handler of Hold runs for For, far beyond its timeout
	Unstuck              // a stuck handler has returned
	Extend               // leases are to be extended, see Keepable and Extended
	EndRead              // the Receive of Source under way is to end
	Room                 // the fetcher of Source may read again
	Emptied              // Source, which has ended, has no Hold any more
	Crowded              // Stats.Crowded has changed
)

// Effects are the actions that are to be carried out.
type Effects struct {
	Acks      []*Hold // to be acknowledged
	FlushAcks bool    // without a wait for further ones
	Rest      []Effect
	Wake      []*Worker
	Start     int // workers
	Freed     limiter.Released
}

func (l *Ledger) do(e Effect) {
	if e.Kind == Lost || e.Kind == Stuck {
		e.Hold.told = true
	}
	l.Out.Rest = append(l.Out.Rest, e)
}

// Stats are the present numbers of a Ledger.
type Stats struct {
	Held, Running, Stuck, Parked int
	Spare                        int // how many workers may run in place of stuck ones
	Bytes                        int64
	Crowded                      bool // nothing is read until fewer are parked
}

// Stats returns the present numbers.
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

// Quiet reports whether l is closed, no worker has a run, and the program has no message to
// settle.
func (l *Ledger) Quiet() bool {
	return l.closed && len(l.busy) == 0 && l.entrusts == 0 && !l.finishes()
}

// Close lets no further Hold start, and gives back the Holds that have not started. Batches
// that have gathered are handled.
func (l *Ledger) Close() {
	l.closed = true
	l.giveBackUnstarted(nil, l.Batch.Size > 0)
	l.Out.Wake, l.idle = append(l.Out.Wake, l.idle...), nil // they end, or take the last batches
	l.rouse()
}

// finishes reports whether a batch is left that is handled although l is closed.
func (l *Ledger) finishes() bool {
	return l.Batch.Size > 0 && !l.interrupted && l.startable() > 0
}

// Revoke lets no further Hold of s start, and gives back the Holds of s that have not
// started. Other Holds of s stay until they are settled. The other sources do not notice.
func (l *Ledger) Revoke(s *Source) {
	s.revoked = true
	for _, n := range s.lanes {
		for len(n.stubs) > 0 { // their alarms would ring for ever
			s.resolve(n.stubs[0])
		}
	}
	l.giveBackUnstarted(s, false)
	l.sources = slices.DeleteFunc(l.sources, func(o *Source) bool { return o == s })
	l.waiting = slices.DeleteFunc(l.waiting, func(o *Source) bool { return o == s })
	l.Unread(s)
	l.rouse() // for Holds of other sources that were taken from slices
}

// giveBackUnstarted gives back the Holds of s that have not started; nil: of all sources. The
// Holds of a lane are due when its first one is. keep: Holds that are ready stay.
func (l *Ledger) giveBackUnstarted(s *Source, keep bool) {
	for _, w := range l.busy {
		l.steal(w)
	}
	all := slices.Clone(l.held)
	due := map[*lane]Moment{}
	for _, h := range all {
		if h.lane != nil {
			due[h.lane] = h.lane.retry()
		}
	}
	for _, h := range all {
		if (s == nil || h.Source == s) && (h.state == waiting || h.state == ready && !keep) {
			at := max(h.Due, due[h.lane])
			if h.handsOver() {
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
