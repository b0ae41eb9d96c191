package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

// A scheduler has everything that a subscription holds and hands it to workers: in
// the order of receipt, one Hold of each key at a time, one suspect at a time.
//
// Workers are started one after another when there is work for them, and stay.
type scheduler struct {
	sub *Subscription

	mu          sync.Mutex
	work        *sync.Cond    // for idle workers
	quiet       chan struct{} // closed once closed and nothing runs or is entrusted
	closed      bool          // nothing more is started
	interrupted bool          // a drain has cancelled the handlers
	ready       queue
	suspects    []*Hold // handed out more often than failures explain
	suspect     *Hold   // the one that runs
	resting     []*Hold
	deaf        []*Hold // taken back from the program for their timeout, with a handler that runs
	lanes       lanes
	reads       []*read
	held        int              // not released
	freed       limiter.Released // not told to the limiter yet

	prefetch
	workers, idle int
	waking        bool // a worker is on its way
	working       int  // handlers running
	trusted       int  // manual mode: with the program, not released yet
	watchWakes    time.Time
}

func (d *scheduler) init(s *Subscription) {
	d.sub = s
	d.work = sync.NewCond(&d.mu)
	d.quiet = make(chan struct{})
	d.prefetch.init(s)
}

// put takes the Holds of a Receive. It returns the Holds that are not to be run, in
// state settling: they have no message to handle, or were handed out too often. With
// FailAll a Hold that was handed out too often keeps its place in its lane, and invoke
// puts it aside.
func (d *scheduler) put(r *read) (aside []*Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.lanes.settle(r.asked, r.turn)
	d.enlist(r)
	var touched []*lane
	for i := range r.holds {
		h := &r.holds[i]
		switch {
		case d.closed:
			d.giveBack(&giveBack{holds: []*Hold{h}})
		case h.delivery.Err != nil || d.sub.OnFailure != FailAll && d.sub.spent(h.attempt):
			d.decided(h)
			aside = append(aside, h)
		default:
			if l := d.arrive(h); l != nil && !l.touched {
				l.touched, touched = true, append(touched, l)
			}
		}
	}
	for _, l := range touched {
		l.touched = false
		d.advance(l)
	}
	d.rouse()
	d.watchHoard()
	d.nudgeWatch(d.sub.time(r.holds[0].until))
	if d.sub.Timeout > 0 {
		d.nudgeWatch(time.Now().Add(d.sub.Timeout))
	}
	return aside
}

// enlist notes that the Holds of r are held.
func (d *scheduler) enlist(r *read) {
	r.index = len(d.reads)
	d.reads = append(d.reads, r)
	d.held += len(r.holds)
}

// all lists the Holds that are not released.
func (d *scheduler) all() (hs []*Hold) {
	hs = make([]*Hold, 0, d.held)
	for _, r := range d.reads {
		for i := range r.holds {
			if r.holds[i].state != released {
				hs = append(hs, &r.holds[i])
			}
		}
	}
	return hs
}

// rouse wakes or hires a worker if a Hold is ready. At most one worker is on its way at
// a time, and it rouses the next.
func (d *scheduler) rouse() {
	if d.closed || d.waking || !d.startable() {
		return
	}
	switch {
	case d.idle > 0:
		d.waking = true
		d.work.Signal()
	case d.workers < d.sub.Concurrency:
		d.waking = true
		d.workers++
		d.sub.workers.Go(d.sub.worker)
	}
}

func (d *scheduler) startable() bool {
	return d.ready.len() > 0 || d.suspect == nil && len(d.suspects) > 0
}

// take waits for a Hold to run. It returns nil when there will be none.
func (d *scheduler) take() *Hold {
	d.mu.Lock()
	defer d.unlock()
	for {
		d.waking = false
		if d.closed {
			d.workers--
			return nil
		}
		if h := d.next(time.Now()); h != nil {
			return h
		}
		d.idle++
		d.work.Wait()
		d.idle--
	}
}

// next starts a Hold, if there is one. A Hold whose lease expired while it waited is not
// started.
func (d *scheduler) next(now time.Time) *Hold {
	for d.startable() {
		h := d.pick()
		if h.until <= d.sub.moment(now) {
			if d.suspect == h {
				d.suspect = nil
			}
			d.lose(h, nil)
			continue
		}
		d.start(h, now)
		d.rouse()
		d.tellRoom()
		d.watchHoard()
		return h
	}
	return nil
}

func (d *scheduler) pick() *Hold {
	if d.suspect == nil && len(d.suspects) > 0 && (d.ready.len() == 0 || rand.IntN(2) == 0) {
		i := rand.IntN(len(d.suspects))
		d.suspect = d.suspects[i]
		d.suspects = slices.Delete(d.suspects, i, i+1)
		return d.suspect
	}
	return d.ready.pop()
}

// succeeded notes that the run of h has ended well and that h is being
// acknowledged, and takes another Hold to run, if there is one. It refuses if
// something else was decided for h.
func (d *scheduler) succeeded(h *Hold, now time.Time) (next *Hold, ok bool) {
	d.mu.Lock()
	defer d.unlock()
	if h.state != running {
		return nil, false
	}
	waking := d.waking
	d.waking = true // this worker takes the Hold that becomes ready
	d.ran(h, time.Duration(d.sub.moment(now)-h.began), nil)
	d.settle(h)
	d.waking = waking
	if !d.closed {
		next = d.next(now)
	}
	d.tellRoom()
	d.tellQuiet()
	return next, true
}

// A finding is how things stand when a handler returns.
type finding struct {
	lost        bool // the lease
	late        bool // the timeout has passed
	decided     bool // the program has settled it already, or the watch has
	interrupted bool // a drain has cancelled the handlers
}

// returned notes that the handler of h has returned after so long, and reports how
// things stand.
func (d *scheduler) returned(h *Hold, took time.Duration, err error) finding {
	d.mu.Lock()
	defer d.unlock()
	f := finding{lost: h.lost, late: d.sub.Timeout > 0 && took >= d.sub.Timeout, decided: h.state != running, interrupted: d.interrupted}
	d.ran(h, took, err)
	switch {
	case f.decided:
	case d.sub.Mode == Manual && err == nil && !h.lost:
		d.entrust(h)
	default:
		d.decided(h)
	}
	d.tellRoom()
	d.tellQuiet()
	return f
}

// settles notes that h is being acknowledged, and reports whether nothing is left
// to start.
func (d *scheduler) settles(h *Hold) (nothingReady bool) {
	d.mu.Lock()
	defer d.unlock()
	d.settle(h)
	return d.ready.len() == 0
}

// release gives up Holds and their places. A caller that waits for one is told err.
func (d *scheduler) release(hs []*Hold, err error) {
	if len(hs) == 0 {
		return
	}
	d.mu.Lock()
	defer d.unlock()
	d.free(hs, err)
}

// unlock ends each method that takes the lock. It tells the limiter which places are
// free, which must not happen under the lock.
func (d *scheduler) unlock() {
	freed := d.freed
	d.freed = limiter.Released{}
	d.mu.Unlock()
	if freed.Settled > 0 {
		d.sub.Limiter.Release(freed)
	}
}

// nudgeWatch sees to it that the watch looks at the given moment, if it was
// going to look only later.
func (d *scheduler) nudgeWatch(at time.Time) {
	if !d.watchWakes.IsZero() && !at.Before(d.watchWakes) {
		return
	}
	d.watchWakes = at
	select {
	case d.sub.nudge <- struct{}{}:
	default:
	}
}

func (d *scheduler) tellQuiet() {
	if d.closed && d.working == 0 && d.trusted == 0 && !isClosed(d.quiet) {
		close(d.quiet)
	}
}

// keyOf returns the key of the lane that keeps h in order, if any.
func (s *Subscription) keyOf(h *Hold) (key string, keyed bool) {
	switch s.Order {
	case Total:
		return "", true
	case ByKey:
		return h.delivery.Key, h.delivery.Key != ""
	}
	return "", false
}

// canRefund reports whether an event that has not run can be given back for free.
func (s *Subscription) canRefund(a *attachment) bool {
	return s.engine.limits.Refund && a.delayer != nil
}

// spent reports whether an event was handed out too often to be run once more.
// Where giving back counts as an attempt, that proves nothing.
func (s *Subscription) spent(attempt int) bool {
	return s.engine.limits.Refund && s.Policy.spent(attempt)
}
