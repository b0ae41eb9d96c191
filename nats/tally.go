package nats

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A tally is the knowledge of a member about the deliveries of its consumer. It finds
// deliveries that the server has sent to the member, and that never arrived.
//
// The server numbers all deliveries of a consumer. A member that is alone gets every number.
// So after a lost connection, the numbers between its newest delivery and the newest of the
// server are lost deliveries. Another member leaves signs: numbers that do not arrive here,
// waiting pulls, and pending messages that are not held here.
type tally struct {
	held atomic.Int64 // deliveries that have arrived, and are neither settled for certain nor delayed

	mu      sync.Mutex
	number  uint64           // number of the newest delivery
	stream  uint64           // highest sequence of a delivered message
	reply   string           // reply subject of a delivery; empty before the first
	delayed map[uint64]delay // by sequence: messages that the member has given back
	lost    map[uint64]bool  // sequences that the member has recalled; some may be of other topics
	owed    int              // messages of lost that have not come again, at most
	company time.Time        // time of the last sign of another member; zero if there was none
}

// A delay is a Delay whose message has not come again.
type delay struct {
	receipt *receipt
	due     int64 // instant at which the message is due at the latest
	certain bool  // the server has confirmed the Delay
	before  int64 // value of receipt.until before the call
}

// calm is the time without signs after which a member is alone. Maintain looks for signs
// every 5 seconds at least.
const calm = 15 * time.Second

// Values of receipt.until that are not the end of a lease. Another negative value -x means
// that the outcome of a Delay is unknown, and that no other member gets the message before
// the instant x.
const (
	settled  = 0             // by a call that the server has confirmed
	returned = math.MinInt64 // a Delay of unknown outcome was done
)

// A count is the state of a tally at a moment.
type count struct {
	number, stream uint64
	pending        int // most messages that the member may have made pending
	alone          bool
}

// begin records the state of the consumer to which the member attaches.
func (t *tally) begin(c *jetstream.ConsumerInfo) {
	t.number, t.stream = c.Delivered.Consumer, c.Delivered.Stream
	t.delayed, t.lost = map[uint64]delay{}, map[uint64]bool{}
	if c.NumAckPending > 0 || c.NumWaiting > 0 {
		t.company = time.Now()
	}
}

// now returns the present count.
func (t *tally) now() count {
	t.mu.Lock()
	defer t.mu.Unlock()
	return count{
		number: t.number, stream: t.stream, pending: int(t.held.Load()) + len(t.delayed) + t.owed,
		alone: t.company.IsZero() || time.Since(t.company) > calm,
	}
}

// meet records a sign of another member.
func (t *tally) meet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.company = time.Now()
}

// arrived records a delivery. The caller holds t.mu.
func (t *tally) arrived(m meta, reply string) {
	if m.number > t.number+1 {
		t.company = time.Now()
	}
	t.number, t.stream, t.reply = m.number, max(t.stream, m.sequence), reply
	if d, ok := t.delayed[m.sequence]; ok {
		delete(t.delayed, m.sequence)
		d.done()
	}
	switch {
	case t.owed == 0:
	case m.delivered == 1: // recalled messages come before new ones
		t.owed = 0
		clear(t.lost)
	case t.lost[m.sequence]:
		t.owed--
		delete(t.lost, m.sequence)
	}
}

// done records that the message has come again, or will.
func (d delay) done() {
	if !d.certain {
		d.receipt.until.Store(returned)
	}
}

// reach makes the newest delivery of the server the newest of the tally.
func (t *tally) reach(c *jetstream.ConsumerInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number, t.stream = c.Delivered.Consumer, c.Delivered.Stream
}

// judge returns the number of deliveries between before and c. It notes whether there are
// signs of another member. pulls is the most pulls of this member that may wait.
func (t *tally) judge(before count, c *jetstream.ConsumerInfo, pulls int) (newer uint64, alone bool) {
	if c.Delivered.Consumer > before.number {
		newer = c.Delivered.Consumer - before.number
	}
	alone = c.NumWaiting <= pulls && uint64(c.NumAckPending) <= uint64(max(before.pending, 0))+newer
	if !alone {
		t.meet()
	}
	return newer, alone
}

// wiped records that the consumer was deleted.
func (t *tally) wiped() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number, t.stream, t.company = 0, 0, time.Now()
	clear(t.delayed)
	clear(t.lost)
	t.owed = 0
}

// overdue returns the sequences of messages that are due but have not come again. It returns
// none if the Delay of each of them has a certain outcome, unless always is set.
func (t *tally) overdue(always bool) (sequences []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := leases.now()
	for sequence, d := range t.delayed {
		if d.due <= now {
			sequences = append(sequences, sequence)
			always = always || !d.certain
		}
	}
	if !always {
		return nil
	}
	for sequence := range t.lost {
		sequences = append(sequences, sequence)
	}
	slices.Sort(sequences)
	return slices.Compact(sequences)
}

// recalled records that the server will redeliver messages before all others: the overdue
// ones, and the lost ones with sequences from first to last.
func (t *tally) recalled(overdue []uint64, lost int, first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sequence := range overdue {
		if d, ok := t.delayed[sequence]; ok {
			d.done()
			d.certain = true
			t.delayed[sequence] = d
		}
	}
	for sequence := first; sequence <= last; sequence++ {
		t.lost[sequence] = true
	}
	t.owed = min(t.owed+lost, len(t.lost))
}

// settle records that a delivery was acknowledged for certain, or that its lease is lost.
func (t *tally) settle(r *receipt) {
	switch was := r.until.Swap(settled); {
	case was == settled, was == returned, was < 0 && t.forget(r):
	default:
		t.held.Add(-1)
	}
}

// forget removes the delay of r, and reports whether there was one.
func (t *tally) forget(r *receipt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := metaOf(r.reply)
	mine := t.delayed[m.sequence].receipt == r
	if mine {
		delete(t.delayed, m.sequence)
	}
	return mine
}

// delay records a Delay before it is sent, because its message may come again before the
// answer. No other member gets the message before the instant first.
func (t *tally) delay(r *receipt, first int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := metaOf(r.reply)
	was := r.until.Load()
	if t.delayed[m.sequence].receipt != r {
		t.held.Add(-1)
	}
	t.delayed[m.sequence] = delay{receipt: r, due: math.MaxInt64, before: was}
	if was < 0 {
		was = -was
	}
	r.until.Store(-max(1, min(was, first)))
}

// delayed records the end of a Delay. If the server knows of it, the message is due at the
// instant due. A Delay that was certainly not sent is forgotten.
func (t *tally) delayedUntil(r *receipt, due int64, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, _ := metaOf(r.reply)
	d := t.delayed[m.sequence]
	waits := d.receipt == r // it has not come again
	switch {
	case waits && o == failed && d.before > 0:
		delete(t.delayed, m.sequence)
		t.held.Add(1)
		r.until.Store(d.before)
		return
	case waits && o == failed: // an earlier call had no certain outcome
		r.until.Store(d.before)
		o = uncertain
	}
	if o == done {
		r.until.Store(settled)
	}
	if waits {
		d.due, d.certain = due, o == done
		t.delayed[m.sequence] = d
	}
}
