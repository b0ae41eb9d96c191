package engine

import (
	"sync"
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

// A ledger has all Holds of a subscription. Its callers hold the scheduler's lock.
type ledger struct {
	sub *Subscription

	work        *sync.Cond    // wakes idle workers
	quiet       chan struct{} // closed when closed is set, and working and trusted are 0
	closed      bool          // no further Hold is started
	interrupted bool          // a drain has cancelled the handlers
	ready       line
	resting     []*Hold
	deaf        []*Hold // manual mode: expired Holds whose handlers still run
	lanes       lanes
	reads       reads
	freed       limiter.Released // the changes that the limiter was not told yet
	redelivered redelivered

	prefetch
	workers, idle int
	waking        bool      // a worker was woken or started, and has not called take yet
	working       int       // the number of handlers that run
	trusted       int       // manual mode: Holds with Hold.trusted, not released yet
	watchWakes    time.Time // when the watcher looks next; zero: no look is planned
}

// A scheduler gives the Holds of a subscription to workers in the order of receipt. Of each
// key, one Hold runs at a time. Of all suspects, see [Policy.suspect], one runs at a time.
// A scheduler is a ledger with a lock. Only methods of scheduler, Hold and giveBack take
// the lock.
//
// Workers are started one after another when there is work for them, and stay.
type scheduler struct {
	mu sync.Mutex
	ledger
}

func (d *scheduler) init(s *Subscription) {
	d.sub = s
	d.work = sync.NewCond(&d.mu)
	d.quiet = make(chan struct{})
	d.redelivered.init(s.MaxRedelivered)
	d.prefetch.init(&d.ledger)
}

// put takes the Holds of a Receive. It returns the unfit ones, in state settling, see
// [Hold.unfit].
func (d *scheduler) put(r *read) (aside []*Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.lanes.settle(r.asked)
	d.reads.add(r)
	var touched []*lane
	for i := range r.holds {
		h := &r.holds[i]
		switch {
		case d.closed:
			d.giveBack(&giveBack{holds: []*Hold{h}})
		case h.unfit():
			h.decided()
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

// rouse wakes or starts one worker if a Hold is ready. When that worker takes its Hold, it
// calls rouse for the next worker.
func (d *ledger) rouse() {
	if d.closed || d.waking || !d.ready.startable() {
		return
	}
	switch {
	case d.idle > 0:
		d.waking = true
		d.work.Signal()
	case d.workers < d.sub.Concurrency:
		d.waking = true
		d.workers++
		d.sub.runner.workers.Go(d.sub.runner.worker)
	}
}

// take waits for a Hold to run. After the scheduler is closed, it returns nil.
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

// next starts the next Hold, if there is one. It does not start a Hold whose lease expired
// while it waited. It postpones a redelivered Hold if too many of them run.
func (d *ledger) next(now time.Time) *Hold {
	for d.ready.startable() {
		h := d.ready.pick()
		if h.until <= d.sub.moment(now) {
			d.ready.ended(h)
			d.lose(h, nil)
			continue
		}
		if d.redelivered.full(h) {
			d.ready.ended(h)
			d.postpone(h, d.redelivered.turn(d.sub.moment(now)), false)
			d.tellRoom()
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

// succeeded notes that the run of h succeeded and that h is being acknowledged. It returns
// the next Hold to run, if there is one. If h is not in state running, ok is false.
func (d *scheduler) succeeded(h *Hold, now time.Time) (next *Hold, ok bool) {
	d.mu.Lock()
	defer d.unlock()
	if h.state != running {
		return nil, false
	}
	waking := d.waking
	d.waking = true // no other worker is woken, because this one takes the next Hold
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

// returned notes that the handler of h has returned, and reports the facts for decide.
func (d *scheduler) returned(h *Hold, took time.Duration, err error) run {
	d.mu.Lock()
	defer d.unlock()
	r := run{
		hold: h, err: err, lost: h.lost, late: d.sub.Timeout > 0 && took >= d.sub.Timeout, decided: h.state != running,
		failed: h.failed, interrupted: d.interrupted, manual: d.sub.Mode == Manual, settled: d.sub.Mode == OnReceive,
	}
	d.ran(h, took, err)
	switch {
	case r.decided:
	case d.sub.Mode == Manual && err == nil && !h.lost:
		d.trust(h, entrusted)
	default:
		h.decided()
	}
	d.tellRoom()
	d.tellQuiet()
	return r
}

// settles notes that h is being acknowledged, and reports whether no Hold is ready.
func (d *scheduler) settles(h *Hold) (nothingReady bool) {
	d.mu.Lock()
	defer d.unlock()
	d.settle(h)
	return d.ready.len() == 0
}

// release calls [ledger.free] with the lock.
func (d *scheduler) release(hs []*Hold, err error) {
	if len(hs) == 0 {
		return
	}
	d.mu.Lock()
	defer d.unlock()
	d.free(hs, err)
}

// unlock ends each method that takes the lock. Then it passes freed to the limiter: how
// many Holds were released, and the results of runs. Results of successful runs are passed
// with the next released Hold or failed run, because a call for each run would cost more.
func (d *scheduler) unlock() {
	freed := d.freed
	if freed.Settled == 0 && freed.Failed == 0 {
		d.mu.Unlock()
		return
	}
	d.freed = limiter.Released{}
	d.mu.Unlock()
	d.sub.Limiter.Release(freed)
}

// nudgeWatch plans a look of the watcher at the given time, unless an earlier one is planned.
func (d *ledger) nudgeWatch(at time.Time) {
	if d.watchWakes.IsZero() || at.Before(d.watchWakes) {
		d.watchWakes = at
		d.sub.watcher.in(time.Until(at))
	}
}

func (d *ledger) tellQuiet() {
	if d.closed && d.working == 0 && d.trusted == 0 && !isClosed(d.quiet) {
		close(d.quiet)
	}
}
