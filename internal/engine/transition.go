package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Each change of a Hold's state is a method in this file. Callers hold the scheduler's
// lock.
//
//	arrive    queued; or ready, by admit
//	admit     ready
//	start     ready → running; with OnReceive → confirming
//	acked     confirming → running
//	trust     running → entrusted; running, entrusted → settling
//	claim, expire  running, entrusted → settling, by trust
//	decided   any but released → settling
//	settle    as decided; then the next Hold of the key may run, but not in manual mode
//	rest      released; a new Hold of the same event is resting
//	wakeRested  resting → ready, or queued
//	yield     ready → queued
//	stepBack, giveBack  → returning
//	lose      a Hold whose handler does not run → released
//	free      → released

// arrive makes h ready, or queues it in the lane of its key. The caller advances that lane.
func (d *ledger) arrive(h *Hold) *lane {
	key, keyed := d.sub.Order.keyOf(h)
	if !keyed {
		d.admit(h)
		return nil
	}
	h.lane = d.lanes.of(key)
	if h.lane.away != nil && h.delivery.Position <= h.lane.away.first && !h.delivery.Redelivered { // the group was reset
		h.lane.away = nil
	}
	h.lane.insert(h)
	return h.lane
}

// admit makes h ready, so that a worker may start it.
func (d *ledger) admit(h *Hold) {
	h.state = ready
	d.ready.add(h, d.sub.Policy.suspect(h))
}

// yield puts the head of l back into the queue if it has not started and an earlier event of
// its key has arrived.
func (d *ledger) yield(l *lane) {
	h := l.head
	if h == nil || len(l.queue) == 0 || l.queue[0].delivery.Position >= h.delivery.Position || h.state != ready && h.state != resting {
		return
	}
	if h.state == ready {
		d.ready.drop(h)
		h.state = queued
	}
	l.head = nil
	l.insert(h)
}

// stepBack gives back h and all Holds that queue behind it, to be due at the given moment.
// If counts is set, h has spent an attempt; the other Holds have not.
func (d *ledger) stepBack(h *Hold, due moment, counts bool) {
	g := &giveBack{lane: h.lane, holds: []*Hold{h}, due: due}
	if counts {
		g.counted = h
	}
	if l := h.lane; l != nil {
		l.insert(h)
		g.holds = slices.Clone(l.queue)
		l.head = nil
		clear(l.queue)
		l.queue = l.queue[:0]
		l.retry = due
		g.away = d.lanes.stepping(l, g.holds[0].delivery.Position)
	}
	d.giveBack(g)
}

// soon is the shortest delay with which early events are given back. If less is left, they
// wait in this member and are then given back without a delay. The next Receive then brings
// them late enough to run. After so short a delay in the backend they might arrive early
// again, and then out of order: TestKeyOrderInRandomLives fails without this rule.
const soon = 2 * time.Millisecond

// giveBack hands g to the queue of Delays.
func (d *ledger) giveBack(g *giveBack) {
	for _, h := range g.holds {
		h.state, h.lane = returning, nil
	}
	if wait := time.Duration(g.due - d.sub.moment(time.Now())); g.chases && 0 < wait && wait < soon {
		g.due = 0
		d.sub.settler.delays.Later(g, wait)
		return
	}
	d.sub.settler.delays.Add(g)
}

// gaveBack notes that a call for g has ended. The Holds that g still has will be tried
// again.
func (d *ledger) gaveBack(g *giveBack) {
	if g.chases {
		g.chases = false
		d.chasing--
		d.tellRoom()
	}
	if g.lane != nil && len(g.holds) == 0 {
		g.away.returned(g, d.sub.tick())
		d.advance(g.lane)
	}
}

// start makes h running, or with OnReceive confirming.
func (d *ledger) start(h *Hold, now time.Time) {
	h.state, h.working, h.began = running, true, 0
	d.working++
	d.redelivered.begins(h)
	if d.sub.Mode == OnReceive {
		h.state, h.wait = confirming, newWait()
		return
	}
	h.begin(now, d.interrupted)
}

// ran notes that no handler runs for h any more.
func (d *ledger) ran(h *Hold, took time.Duration, err error) {
	h.working = false
	d.working--
	d.redelivered.ends(h, took)
	if d.sub.Mode != Manual || err != nil && h.state == running { // otherwise free calls d.ended
		d.ended(h, took, err)
	}
	if d.ready.suspect == h {
		d.ready.ended(h)
		d.rouse()
	}
}

// ended notes how long a run took, or in manual mode the time until settlement.
func (d *ledger) ended(h *Hold, took time.Duration, err error) {
	if h.began == 0 || err != nil && isUnrun(err) { // no handler ran
		return
	}
	d.measure(took)
	d.freed.Runs++
	d.freed.Took += took
	if err != nil {
		d.freed.Failed++
	}
}

// trust sets the state of h in manual mode: entrusted after its run, and settling when Ack,
// Nack or the timeout settles it. d.trusted counts h until its release.
func (d *ledger) trust(h *Hold, to state) {
	h.state = to
	if !h.trusted {
		h.trusted = true
		d.trusted++
	}
}

// claim gives the program the right to settle h.
func (d *ledger) claim(h *Hold) (wait, error) {
	switch {
	case h.lost, h.timing >= expired:
		return nil, errLeaseLost(nil)
	case h.state != running && h.state != entrusted:
		return nil, ErrSettled
	}
	d.trust(h, settling)
	h.wait = newWait()
	return h.wait, nil
}

// expire takes h back from the program after its timeout. It reports whether h was still
// unsettled.
func (d *ledger) expire(h *Hold) bool {
	if h.lost || h.state != running && h.state != entrusted {
		return false
	}
	d.trust(h, settling)
	h.timing, h.failed = expired, true
	if h.working {
		d.deaf = append(d.deaf, h)
	}
	return true
}

// decided notes that h will be settled without another run. h keeps its place in its lane.
func (h *Hold) decided() {
	if h.state != released {
		h.state = settling
	}
}

// settle notes that h is being acknowledged. In manual mode the next Hold of its key waits
// until the acknowledgement is confirmed.
func (d *ledger) settle(h *Hold) {
	h.decided()
	if d.sub.Mode != Manual {
		d.leave(h)
	}
}

// leave takes h out of its lane, so that the next Hold of the key may run.
func (d *ledger) leave(h *Hold) {
	l := h.lane
	if l == nil {
		return
	}
	h.lane = nil
	if l.head == h {
		l.head, l.retry = nil, 0
	} else {
		l.remove(h)
	}
	d.advance(l)
}

// rest replaces h by a new Hold of the same delivery, which rests at the head of the lane
// until due, and releases h. The Hold is new, because a context, a waiting caller, or a
// handler that has not returned may refer to h. If the scheduler is closed or h lost its
// lease, rest does nothing and returns false.
func (d *ledger) rest(h *Hold, due moment, counts bool) bool {
	if d.closed || h.lost || h.state == released {
		return false
	}
	r := newRead(d.sub, h.read.attachment, 1)
	r.asked, r.arrived = h.read.asked, h.read.arrived
	next := &r.holds[0]
	next.delivery, next.attempt, next.size, next.until = h.delivery, h.attempt, h.size, h.until
	next.redriven = h.redriven
	if counts {
		next.attempt++
	}
	next.state, next.due = resting, due
	h.heir = next // a call of Extend for h may be under way
	if next.lane, h.lane = h.lane, nil; next.lane != nil {
		next.lane.head = next
	}
	d.reads.add(r)
	d.resting = append(d.resting, next)
	freed := d.freed
	d.free([]*Hold{h}, nil)
	d.freed.Settled, d.freed.Bytes = freed.Settled, freed.Bytes // the limiter counts next in place of h
	if next.lane != nil {
		d.advance(next.lane)
	}
	d.nudgeWatch(d.sub.time(due))
	return true
}

// wakeRested makes resting Holds that are due ready, and returns when the next one is due.
func (d *ledger) wakeRested(now moment) (next moment) {
	d.resting = slices.DeleteFunc(d.resting, func(h *Hold) bool {
		switch {
		case h.state != resting:
			return true
		case h.due > now:
			if next == 0 || h.due < next {
				next = h.due
			}
			return false
		case h.lane == nil:
			d.admit(h)
			return true
		}
		if d.yield(h.lane); h.lane.head == h {
			d.admit(h)
			return true
		}
		h.state = queued
		d.advance(h.lane)
		return true
	})
	return next
}

// lose notes that the lease of h is lost, so another member may have the event. It cancels
// the run of h. If h does not run, lose releases it, so that later events of the key may
// run. It ignores a Hold that is being settled.
func (d *ledger) lose(h *Hold, why error) {
	if h.lost || h.leaseless() || h.state >= settling {
		return
	}
	h.lost = true
	d.sub.tellLost(h, h.working && h.state != confirming, why)
	h.ctx.cancel(errLeaseLost(why))
	if h.working {
		return
	}
	d.ready.drop(h)
	d.free([]*Hold{h}, errLeaseLost(why))
	d.tellRoom()
}

// free releases hs, and counts them for the limiter. A caller that waits for the settlement
// of a Hold gets err.
func (d *ledger) free(hs []*Hold, err error) {
	f := &d.freed
	for _, h := range hs {
		if h.state == released {
			continue
		}
		if h.trusted {
			h.trusted = false
			d.trusted--
			d.ended(h, time.Duration(d.sub.moment(time.Now())-h.began), h.failure())
		}
		h.state = released
		d.leave(h)
		f.Settled++
		f.Bytes += h.size
		if h.wait != nil {
			h.wait.end(err)
			h.ctx.finish() // after wait.end, because the caller may wait with this context
		}
		if !d.closed { // otherwise its handler, or the code that settles it, may still use it
			// Other Holds of its read, which may be held for long, keep h in memory.
			h.delivery.Payload, h.delivery.Headers, h.delivery.Token = nil, nil, nil
		}
		d.reads.drop(h.read) // last, because d.reads may then forget h
	}
	d.tellQuiet()
}

// acked notes that h is acknowledged, and reports whether h is done. If not, h was in state
// confirming and may run now, unless its lease has expired.
func (h *Hold) acked(now moment) (done bool) {
	switch {
	case h.state != confirming:
		return true
	case h.lost || h.until <= now:
		h.wait.end(fmt.Errorf("eventbus: acknowledged after the lease: %w", unknown(backend.ErrLeaseLost)))
	default:
		h.state = running
		h.wait.end(nil)
	}
	return false
}
