package engine

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// A watcher acts when time has passed. It ends late runs, notices expired leases, makes
// resting Holds ready when they are due, and gives back Holds that wait too long. It runs at
// the next of these moments, see ledger.nudgeWatch.
type watcher struct {
	*recurring
	sub *Subscription
}

func newWatcher(s *Subscription) *watcher {
	w := &watcher{sub: s}
	w.recurring = recur(time.Hour, func(*recurring) { w.act(s.sched.look(time.Now())) })
	return w
}

// stuckAfter is the time from the timeout of a run to its report as stuck, if the handler
// has not returned.
const stuckAfter = 5 * time.Second

// A sighting has the Holds that the watcher must act on.
type sighting struct {
	late    []*Hold // Holds whose runs are past their timeout
	expired []*Hold // manual mode: Holds past their timeout, to settle as failed runs
	stuck   []observer.Stuck
	hoards  bool   // the result of prefetch.hoards
	next    moment // when to look again; zero: not known
}

// by asks for another look at the moment m, unless m is zero.
func (v *sighting) by(m moment) {
	if m != 0 && (v.next == 0 || m < v.next) {
		v.next = m
	}
}

// look finds the Holds to act on now, and plans the next look. Without a moment for it, the
// next look comes after a nudge.
func (d *scheduler) look(at time.Time) (seen sighting) {
	d.mu.Lock()
	defer d.unlock()
	now := d.sub.moment(at)
	for _, h := range d.reads.all() {
		seen.lookAt(&d.ledger, h, now)
	}
	d.deaf = slices.DeleteFunc(d.deaf, func(h *Hold) bool {
		if h.state == released { // otherwise the loop above has looked at h
			seen.lookAt(&d.ledger, h, now)
		}
		return !h.working || h.timing == stuck
	})
	seen.by(d.wakeRested(now))
	hoards, again := d.hoards(now)
	seen.hoards = hoards
	seen.by(again)
	d.rouse()
	if d.reads.held > 0 && d.sub.Timeout > 0 {
		seen.by(d.sub.moment(at.Add(d.sub.Timeout))) // the timeout of a run that starts now
	}
	if seen.next != 0 || !d.watchWakes.After(at) {
		d.watchWakes = time.Time{}
	}
	if seen.next != 0 {
		d.nudgeWatch(d.sub.time(seen.next))
	}
	return seen
}

// lookAt checks one Hold against the clock.
func (v *sighting) lookAt(d *ledger, h *Hold, now moment) {
	switch {
	case h.lost || h.leaseless() || h.state >= settling:
		// Nothing to do: the lease is lost or not needed, or the queue that settles h
		// checks it.
	case h.until <= now:
		d.lose(h, nil)
	default:
		v.by(h.until)
	}
	if d.sub.Timeout == 0 || h.began == 0 || !h.working && h.state != entrusted {
		return
	}
	deadline := h.began.plus(d.sub.Timeout)
	gone := deadline.plus(stuckAfter)
	switch {
	case deadline > now:
		v.by(deadline)
	case h.timing == inTime:
		h.timing = late
		if d.sub.Mode == Manual && d.expire(h) {
			v.expired = append(v.expired, h)
		} else {
			v.late = append(v.late, h)
		}
		v.by(gone)
	case !h.working || h.timing == stuck:
	case gone > now:
		v.by(gone)
	default:
		h.timing = stuck
		v.stuck = append(v.stuck, observer.Stuck{About: h.about(), Running: time.Duration(now - h.began)})
	}
}

// act ends the runs that are late, and gives back Holds that wait too long.
func (w *watcher) act(seen sighting) {
	for _, h := range seen.late {
		h.ctx.cancel(w.sub.timeout)
	}
	for _, h := range seen.expired {
		h.ctx.cancel(w.sub.timeout)
		w.sub.runner.failed(h, w.sub.timeout)
	}
	if seen.hoards {
		w.sub.fetcher.endRead() // otherwise this Receive would bring the same events again
		w.sub.sched.giveBackUnstarted()
	}
	for _, st := range seen.stuck {
		tell(w.sub.notifier.later.Stuck, st)
	}
}
