package engine

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// watch is the one clock of a subscription: it ends runs that take too long,
// notices leases that have run out, starts retries that wait here, and gives back
// what waits too long. It sleeps until the next of these moments and costs a
// handler nothing.
func (s *Subscription) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		seen, next := s.sched.look(time.Now())
		s.act(seen)
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-s.nudge:
		case <-s.keeping.Done():
			return
		}
	}
}

// stuckAfter is how long after its timeout a handler that does not return is
// told to be stuck.
const stuckAfter = 5 * time.Second

// A sighting lists what the watch has to act on.
type sighting struct {
	late    []*Hold // runs past their timeout
	expired []*Hold // entrusted, past their timeout
	stuck   []observer.Stuck
	hoards  bool   // something waits unstarted for too long
	next    moment // when to look again; zero: not known
}

// by asks for another look at the moment m, unless that is zero.
func (v *sighting) by(m moment) {
	if m != 0 && (v.next == 0 || m < v.next) {
		v.next = m
	}
}

// look finds what is due at the moment now, and when to look next; zero: when
// nudged.
func (d *scheduler) look(at time.Time) (seen sighting, next time.Time) {
	d.mu.Lock()
	defer d.unlock()
	now := d.sub.moment(at)
	for _, h := range d.all() {
		d.lookAt(h, now, &seen)
	}
	d.deaf = slices.DeleteFunc(d.deaf, func(h *Hold) bool {
		if h.state == released { // or the loop above has looked at h
			d.lookAt(h, now, &seen)
		}
		return !h.working || h.timing == stuck
	})
	seen.by(d.wakeRested(now))
	hoards, again := d.hoards(now)
	seen.hoards = hoards
	seen.by(again)
	d.rouse()
	if d.held > 0 && d.sub.Timeout > 0 {
		seen.by(d.sub.moment(at.Add(d.sub.Timeout))) // of a run that may start in the meantime
	}
	next = d.sub.time(seen.next)
	if next.IsZero() && d.watchWakes.After(at) {
		next = d.watchWakes // or each event that finds nothing held would wake the watch
	}
	d.watchWakes = next
	return seen, next
}

// lookAt checks one Hold against the clock.
func (d *scheduler) lookAt(h *Hold, now moment, seen *sighting) {
	switch {
	case h.lost || h.leaseless() || h.state >= settling:
		// Its lease matters no more, or is minded by the queue that settles it.
	case h.until <= now:
		d.lose(h, nil)
	default:
		seen.by(h.until)
	}
	if d.sub.Timeout == 0 || h.began == 0 || !h.working && h.state != entrusted {
		return
	}
	deadline := h.began.plus(d.sub.Timeout)
	gone := deadline.plus(stuckAfter)
	switch {
	case deadline > now:
		seen.by(deadline)
	case h.timing == inTime:
		h.timing = late
		if d.sub.Mode == Manual && d.expire(h) {
			seen.expired = append(seen.expired, h)
		} else {
			seen.late = append(seen.late, h)
		}
		seen.by(gone)
	case !h.working || h.timing == stuck:
	case gone > now:
		seen.by(gone)
	default:
		h.timing = stuck
		seen.stuck = append(seen.stuck, observer.Stuck{About: h.about(), Running: time.Duration(now - h.began)})
	}
}

// act ends the runs that are late, and gives back Holds that wait too long.
func (s *Subscription) act(seen sighting) {
	for _, h := range seen.late {
		h.ctx.cancel(s.timeout)
	}
	for _, h := range seen.expired {
		h.ctx.cancel(s.timeout)
		s.failed(h, s.timeout)
	}
	if seen.hoards {
		s.endRead() // or it would bring the same again
		s.sched.giveBackUnstarted()
	}
	for _, st := range seen.stuck {
		tell(s.engine.tell.later.Stuck, st)
	}
}
