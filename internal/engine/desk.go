package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/internal/lanes"
)

// A desk has everything that a subscription holds, and hands it to workers: in
// the order of receipt, one at a time of each key, suspects one at a time.
//
// Workers are hired when there is work for them, one after another, and stay.
type desk struct {
	sub  *Subscription
	hire func() // starts a worker

	mu          sync.Mutex
	work        *sync.Cond    // for idle workers
	room        chan struct{} // for the fetcher, when it may read
	quiet       chan struct{} // closed once closed and nothing runs or is entrusted
	closed      bool          // nothing more is started
	interrupted bool          // a drain has cancelled the handlers
	paused      bool
	ready       queue
	suspects    []*Hold // handed out more often than failures explain
	suspect     *Hold   // the one that runs
	resting     []*Hold
	lanes       lanes.Lanes[*Hold]
	nextYield   time.Time // nothing yields its place before
	yieldedTo   time.Time // the due moment of the event for which that was last
	yieldFor    time.Duration
	furthest    string    // the highest position that has come
	overdue     bool      // something that is away should have come back
	cleared     time.Time // what was due before this is handed out, to us or to others
	asking      time.Time // since when a Receive waits; zero: none does
	reads       []*read
	held        int // not released

	workers, idle int
	waking        bool          // a worker is on its way
	working       int           // handlers running
	entrusted     int           // manual mode: not released yet
	measured      bool          // average is valid
	average       time.Duration // of a run
	brisk         time.Duration // runs no longer than this could start all that may be held
	fetcherWaits  bool
	watchWakes    time.Time // when the watch looks next; zero: when nudged
}

// behindKey is how many events are held behind one of their key that is away.
const behindKey = 16

// crowdedFor is how long what finds no room behind its key is sent away if what it
// waits for is due and late: it must not go in circles meanwhile.
const crowdedFor = 100 * time.Millisecond

func (d *desk) init(s *Subscription) {
	d.sub = s
	d.work = sync.NewCond(&d.mu)
	d.room = make(chan struct{}, 1)
	d.quiet = make(chan struct{})
	d.hire = func() { s.workers.Go(s.worker) }
	d.brisk = time.Duration(s.Concurrency) * prefetchTime / time.Duration(s.MaxInFlight)
}

// A sorting is what is not to be run of what has arrived.
type sorting struct {
	overtaken         []loss    // older holds of what has come again
	due               time.Time // the latest moment at which something that came back was due
	position          string    // of that
	unreadable, spent []*Hold
	crowded           []sentBack
}

// cameBack notes that what is at a position has come back, and was due at the given
// moment; zero: it was not away.
func (s *sorting) cameBack(position string, due time.Time) {
	if due.IsZero() {
		return
	}
	if due.After(s.due) && !due.After(time.Now()) || due.Equal(s.due) && position > s.position {
		s.due, s.position = due, position
	}
}

// put takes what a Receive brought. asked is when it was asked for; drained says
// that nothing else that had come back was due then.
func (d *desk) put(r *read, asked time.Time, drained bool) (rest sorting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again := d.again(r)
	rest.overtaken = d.overtaken(r, again)
	r.index = len(d.reads)
	d.reads = append(d.reads, r)
	d.held += len(r.holds)
	for i := range r.holds {
		d.sort(&r.holds[i], &rest)
	}
	if len(again) > 0 {
		d.passBy(again, rest.unreadable, rest.spent)
	}
	if drained || r.news {
		d.clear(asked, "")
	} else if !rest.due.IsZero() {
		d.clear(rest.due.Add(-d.sub.Lease), rest.position) // a retry that the broker has lost comes when its lease has passed
	}
	d.rouse()
	d.nudgeWatch(d.sub.time(r.holds[0].until))
	if d.sub.Timeout > 0 {
		d.nudgeWatch(time.Now().Add(d.sub.Timeout))
	}
	return rest
}

// nothing notes that a Receive brought nothing.
func (d *desk) nothing(asked time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear(asked, "")
}

// comeBack is how long after its due moment something may be handed out before it
// is taken to be with another member: what the backend states, and what a busy
// broker adds.
func (d *desk) comeBack() time.Duration {
	late := d.sub.engine.limits.Late
	if late == 0 {
		late = 500 * time.Millisecond
	}
	return late + 1500*time.Millisecond
}

// clear notes that what was due at the given moment has been handed out, and
// lets go on what waits for a message that is with another member. If below is not
// empty, that is certain only of what is before that position: brokers hand out what
// is overdue by position, or by when it was due.
func (d *desk) clear(due time.Time, below string) {
	due = due.Add(-d.comeBack())
	if below == "" {
		if due.After(d.cleared) {
			d.cleared = due
		}
		due, d.overdue = d.cleared, false
	}
	for _, h := range d.lanes.GiveUp(due, below) {
		d.admit(h)
	}
}

func (d *desk) sort(h *Hold, rest *sorting) {
	switch {
	case d.closed:
		h.stage = returning
		rest.crowded = append(rest.crowded, sentBack{hold: h, refund: true})
		return
	case h.delivery.Err != nil:
		h.stage = settling
		rest.unreadable = append(rest.unreadable, h)
		return
	case d.sub.Policy.spent(h.attempt):
		h.stage = settling
		rest.spent = append(rest.spent, h)
		return
	}
	key, keyed := d.sub.laneOf(h)
	if !keyed {
		d.admit(h)
		return
	}
	rest.cameBack(h.delivery.Position, d.lanes.Awaited(key, h.delivery.Position))
	if due, crowded := d.lanes.Crowded(key, h.delivery.Position, behindKey); crowded && d.sub.canRefund() &&
		d.lanes.AwayCount() < d.sub.maxAway() {
		if now := time.Now(); !due.After(now) {
			due = now.Add(crowdedFor)
		}
		d.lanes.Away(key, h.delivery.Position, due, true)
		h.stage = returning
		rest.crowded = append(rest.crowded, sentBack{hold: h, due: due, refund: true})
		return
	}
	h.lane = queued
	if next, ok := d.lanes.Enter(key, h.delivery.Position, h); ok {
		d.admit(next)
	}
}

// passBy lets go on what waits for those that have come again and do not run.
func (d *desk) passBy(again map[string]bool, aside ...[]*Hold) {
	passed := map[string]bool{}
	for _, h := range slices.Concat(aside...) {
		if again[h.delivery.Position] {
			passed[h.delivery.Position] = true
		}
	}
	if len(passed) > 0 {
		for _, next := range d.lanes.Returned(passed) {
			d.admit(next)
		}
	}
}

// admit makes h one that a worker may start.
func (d *desk) admit(h *Hold) {
	if h.lane == queued {
		h.lane = admitted
	}
	if d.sub.Policy.suspect(h.attempt) {
		d.suspects = append(d.suspects, h)
		return
	}
	d.ready.push(h)
}

// leaveLane lets the next of h's key run.
func (d *desk) leaveLane(h *Hold) {
	key, _ := d.sub.laneOf(h)
	var next *Hold
	var ok bool
	switch h.lane {
	case laneless:
		return
	case queued:
		next, ok = d.lanes.Remove(key, h)
	case admitted:
		next, ok = d.lanes.Leave(key)
	}
	h.lane = laneless
	if ok {
		d.admit(next)
		d.rouse()
	}
}

// release gives up what is settled, or lost, and its places.
func (d *desk) release(hs []*Hold, err error) {
	if len(hs) == 0 {
		return
	}
	d.mu.Lock()
	freed := d.free(hs, err)
	d.mu.Unlock()
	d.sub.Limiter.Release(freed)
}

// nudgeWatch sees to it that the watch looks at the given moment, if it was
// going to look only later.
func (d *desk) nudgeWatch(at time.Time) {
	if !d.watchWakes.IsZero() && !at.Before(d.watchWakes) {
		return
	}
	d.watchWakes = at
	select {
	case d.sub.nudge <- struct{}{}:
	default:
	}
}

func (d *desk) tellQuiet() {
	if d.closed && d.working == 0 && d.entrusted == 0 {
		select {
		case <-d.quiet:
		default:
			close(d.quiet)
		}
	}
}

// close lets nothing more start and returns what had not.
func (d *desk) close() (waiting []*Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, r := range d.reads {
		for i := range r.holds {
			if h := &r.holds[i]; h.stage == unstarted || h.stage == resting {
				waiting = append(waiting, h)
			}
		}
	}
	d.ready, d.suspects, d.resting = queue{}, nil, nil
	d.lanes = lanes.Lanes[*Hold]{}
	for _, h := range d.all() {
		h.lane = laneless
	}
	d.work.Broadcast()
	d.tellQuiet()
	return waiting
}

// all lists what is held. What is listed may be looked at when it is not held any
// more, so its memory is not used again.
func (d *desk) all() (hs []*Hold) {
	for _, r := range d.reads {
		r.listed = true
		for i := range r.holds {
			if r.holds[i].stage != released {
				hs = append(hs, &r.holds[i])
			}
		}
	}
	return hs
}

// laneOf returns the lane that keeps h in order, if any.
func (s *Subscription) laneOf(h *Hold) (key string, keyed bool) {
	switch s.Order {
	case Total:
		return "", true
	case ByKey:
		return h.delivery.Key, h.delivery.Key != ""
	}
	return "", false
}

// canRefund reports whether what has not run can be given back for free.
func (s *Subscription) canRefund() bool {
	return s.engine.limits.Refund && s.attached().delayer != nil
}

// maxAway bounds how many messages that are away are remembered for their
// order; beyond it retries wait here.
func (s *Subscription) maxAway() int { return 16 * s.MaxInFlight }

// ask notes since when a Receive waits; zero: none does.
func (d *desk) ask(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking = since
}
