package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Each change of a Hold's state is a method here. The caller holds the scheduler's
// lock.
//
//	arrive    queued, or admit
//	admit     ready
//	start     ready → running, or confirming
//	acked     confirming → running
//	entrust   running → entrusted
//	claim     running, entrusted → settling
//	decided   any before → settling
//	settle    → settling, and the next of its key may run
//	rest      → resting, as a Hold of its own
//	wakeRested  resting → ready, or queued
//	stepBack  → returning, with all of its lane
//	giveBack  → returning
//	lose      queued, ready, resting → released, others lost
//	free      → released

// arrive puts h in line. It returns its lane if that has to be advanced.
func (d *scheduler) arrive(h *Hold) *lane {
	key, keyed := d.sub.keyOf(h)
	if !keyed {
		d.admit(h)
		return nil
	}
	h.lane = d.lanes.of(key)
	h.lane.insert(h)
	return h.lane
}

// admit makes h one that a worker may start.
func (d *scheduler) admit(h *Hold) {
	h.state = ready
	if d.sub.Policy.suspect(h.attempt) {
		d.suspects = append(d.suspects, h)
		return
	}
	d.ready.push(h)
}

// advance lets the next Hold of l run, if it may. Holds that have arrived too early, or
// find no room behind a head that rests, step back.
func (d *scheduler) advance(l *lane) {
	if d.closed {
		return
	}
	l.settleQueue()
	d.yield(l)
	if l.head == nil && len(l.queue) > 0 && l.may(l.queue[0]) {
		l.head = l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		if l.head.state != resting {
			d.admit(l.head)
			d.rouse()
		}
	}
	if l.steps == 0 {
		d.stepBackEarly(l)
	}
	d.lanes.drop(l)
}

// yield lets an earlier event, which has come since, go before a head that has not
// started.
func (d *scheduler) yield(l *lane) {
	h := l.head
	if h == nil || len(l.queue) == 0 || l.queue[0].delivery.Position >= h.delivery.Position || h.state != ready && h.state != resting {
		return
	}
	if h.state == ready {
		d.unready(h)
		h.state = queued
	}
	l.head = nil
	l.insert(h)
}

// unready takes h from the Holds that a worker may start.
func (d *scheduler) unready(h *Hold) {
	d.ready.remove(h)
	d.suspects = slices.DeleteFunc(d.suspects, func(s *Hold) bool { return s == h })
}

// While the head of a long lane fails again and again, its early events return at 5,000
// a second, so that other keys need not wait for them.
const (
	perEvent  = moment(200 * time.Microsecond)
	maxSpread = moment(10 * time.Second)
)

// stepBackEarly gives back the Holds that may not wait in l.
func (d *scheduler) stepBackEarly(l *lane) {
	due, room := l.until, len(l.queue)
	if l.head != nil && l.head.state == resting {
		due, room = max(due, l.head.due), d.keyShare()
	}
	if l.until == 0 && len(l.queue) <= room {
		return
	}
	n := slices.IndexFunc(l.queue, func(h *Hold) bool {
		room--
		return room < 0 && h.state == queued || l.early(h)
	})
	if n < 0 || l.queue[n].read.attachment.delayer == nil {
		return
	}
	early := slices.Clone(l.queue[n:]) // a Hold behind one that steps back would be early too
	clear(l.queue[n:])
	l.queue = l.queue[:n]
	if now := d.sub.moment(time.Now()); now < l.retry {
		spread := due + moment(len(early))*perEvent
		due = max(due, min(spread, now+maxSpread))
	}
	l.stepping(early[0].delivery.Position)
	d.chasing++
	d.giveBack(&giveBack{lane: l, holds: early, due: due, early: true, chases: true})
}

// stepBack gives h back, to be due then, and with it all that queues behind it.
// Only h has spent an attempt, if it counts.
func (d *scheduler) stepBack(h *Hold, due moment, counts bool) {
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
		l.stepping(g.holds[0].delivery.Position)
	}
	d.giveBack(g)
}

// soon is so little time that an early event waits for it here. The event then goes back
// to be due at once, and the next Receive is late enough to bring it to run. If the event
// went back with so short a delay, the next Receive would be too early again.
const soon = 2 * time.Millisecond

// giveBack hands g to the queue of Delays.
func (d *scheduler) giveBack(g *giveBack) {
	for _, h := range g.holds {
		h.state, h.lane = returning, nil
	}
	if wait := time.Duration(g.due - d.sub.moment(time.Now())); g.chases && 0 < wait && wait < soon {
		g.due = 0
		d.sub.delays.Later(g, wait)
		return
	}
	d.sub.delays.Add(g)
}

// gaveBack notes that a call for g has ended. The Holds that g still has will be tried
// again.
func (d *scheduler) gaveBack(g *giveBack) {
	if g.chases {
		g.chases = false
		d.chasing--
		d.tellRoom()
	}
	if l := g.lane; l != nil && len(g.holds) == 0 {
		l.stepped(g.until, d.sub.turns.Add(1))
		d.advance(l)
	}
}

// start makes h run, or be acknowledged before it runs.
func (d *scheduler) start(h *Hold, now time.Time) {
	h.state, h.working, h.began = running, true, 0
	d.working++
	if d.sub.Mode == OnReceive {
		h.state, h.wait = confirming, newWait()
		return
	}
	d.begin(h, now)
}

// begin starts the clock of the run of h.
func (d *scheduler) begin(h *Hold, now time.Time) {
	h.began = d.sub.moment(now)
	deadline := moment(0)
	if d.sub.Timeout > 0 {
		deadline = d.sub.moment(now.Add(d.sub.Timeout)) // which never overflows
	}
	h.ctx.begin(&d.sub.ground, deadline)
	if d.interrupted {
		h.ctx.cancel(ErrShutdown)
	}
}

// ran notes that no handler runs for h any more.
func (d *scheduler) ran(h *Hold, took time.Duration, err error) {
	h.working = false
	h.took, h.failed = h.took+took, err != nil
	d.working--
	if d.sub.Mode != Manual || err != nil {
		d.measure(took)
	}
	if d.suspect == h {
		d.suspect = nil
		d.rouse()
	}
}

// entrust leaves h to the program.
func (d *scheduler) entrust(h *Hold) {
	h.state = entrusted
	d.trust(h)
}

func (d *scheduler) trust(h *Hold) {
	if !h.trusted {
		h.trusted = true
		d.trusted++
	}
}

// claim gives the program the right to settle h.
func (d *scheduler) claim(h *Hold) (*wait, error) {
	switch {
	case h.lost, h.timing >= expired:
		return nil, errLeaseLost(nil)
	case h.state != running && h.state != entrusted:
		return nil, ErrSettled
	}
	d.trust(h)
	h.state, h.wait = settling, newWait()
	return h.wait, nil
}

// expire takes h back from the program, which has had its time, and reports
// whether there was something to take back.
func (d *scheduler) expire(h *Hold) bool {
	if h.lost || h.state != running && h.state != entrusted {
		return false
	}
	d.trust(h)
	h.state, h.timing, h.failed = settling, expired, true
	if h.working {
		d.deaf = append(d.deaf, h)
	}
	return true
}

// decided notes that h is not to run (again). It keeps its place in its lane.
func (d *scheduler) decided(h *Hold) {
	if h.state != released {
		h.state = settling
	}
}

// settle notes that h is being acknowledged. In manual mode the next of its key
// waits until that is confirmed.
func (d *scheduler) settle(h *Hold) {
	d.decided(h)
	if d.sub.Mode != Manual {
		d.leave(h)
	}
}

// leave lets the next of h's key run.
func (d *scheduler) leave(h *Hold) {
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

// rest keeps the delivery of h here until due, at the head of its lane, as a new Hold.
// The run of h ends with h: its context, the caller that waits for its settlement, and a
// handler that has not returned yet. It refuses if the scheduler is closed.
func (d *scheduler) rest(h *Hold, due moment, counts bool) bool {
	if d.closed || h.lost || h.state == released {
		return false
	}
	r := d.sub.newRead(h.read.attachment, 1)
	r.asked, r.turn, r.arrived = h.read.asked, h.read.turn, h.read.arrived
	next := &r.holds[0]
	next.delivery, next.attempt, next.size, next.until = h.delivery, h.attempt, h.size, h.until
	next.took, next.failed = h.took, h.failed
	if counts {
		next.attempt++
	}
	next.state, next.due = resting, due
	if next.lane, h.lane = h.lane, nil; next.lane != nil {
		next.lane.head = next
	}
	d.enlist(r)
	d.resting = append(d.resting, next)
	freed := d.freed
	d.free([]*Hold{h}, nil)
	d.freed = freed // the limiter is not told: the place is taken over
	if next.lane != nil {
		d.advance(next.lane)
	}
	d.nudgeWatch(d.sub.time(due))
	return true
}

// wakeRested makes ready the Holds whose rest is over, and returns when the next one is
// due; zero: none rests.
func (d *scheduler) wakeRested(now moment) (next moment) {
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

// lose notes that the lease of h is lost, so another member may have the event. A run is
// cancelled, and a waiting Hold is released. Later events of the key do not wait for its
// return. A Hold that is being settled is not touched.
func (d *scheduler) lose(h *Hold, why error) {
	if h.lost || h.leaseless() || h.state >= settling {
		return
	}
	h.lost = true
	d.sub.tellLost(h, h.working, why)
	h.ctx.cancel(errLeaseLost(why))
	if h.working {
		return
	}
	d.unready(h)
	d.free([]*Hold{h}, errLeaseLost(why))
	d.tellRoom()
}

// free releases hs. A caller that waits for one is told err.
func (d *scheduler) free(hs []*Hold, err error) {
	f := &d.freed
	for _, h := range hs {
		if h.state == released {
			continue
		}
		if h.trusted {
			h.trusted = false
			d.trusted--
			d.measure(time.Duration(d.sub.moment(time.Now()) - h.began))
		}
		h.state = released
		d.leave(h)
		f.Settled++
		f.Bytes += h.size
		f.Took += h.took
		if h.failed {
			f.Failed++
		}
		if h.wait != nil {
			h.wait.end(err)
			h.ctx.finish() // last: the caller may wait with this very context
		}
		d.held--
		d.dropRead(h.read) // the last look at h
	}
	d.tellQuiet()
}

// dropRead forgets a read of which nothing is held any more.
func (d *scheduler) dropRead(r *read) {
	if r.left--; r.left > 0 {
		return
	}
	last := len(d.reads) - 1
	d.reads[r.index] = d.reads[last]
	d.reads[r.index].index = r.index
	d.reads[last] = nil
	d.reads = d.reads[:last]
}

// acked notes that hs are acknowledged. A Hold that is acknowledged on receipt may run
// now, unless its lease has expired. It returns the other Holds.
func (d *scheduler) acked(hs []*Hold, now moment) (done []*Hold) {
	for _, h := range hs {
		switch {
		case h.state != confirming:
			done = append(done, h)
		case h.lost || h.until <= now:
			h.wait.end(fmt.Errorf("eventbus: acknowledged after the lease: %w", unknown(backend.ErrLeaseLost)))
		default:
			h.state = running
			h.wait.end(nil)
		}
	}
	return done
}
