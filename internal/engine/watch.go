package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// watch is the one clock of a subscription: it ends runs that take too long,
// notices leases that have run out, starts retries that wait here, and lets
// go on what waits for a message that does not come back. It sleeps until the
// next of these moments and costs a handler nothing.
func (s *Subscription) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		seen, next := s.desk.look(time.Now())
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

// A sighting is what the watch found.
type sighting struct {
	lost    []*Hold
	late    []*Hold // runs past their timeout
	expired []*Hold // entrusted, past their timeout
	stuck   []observer.Stuck
}

// look finds what is due at the moment now, and when to look next; zero: when
// nudged.
func (d *desk) look(now time.Time) (seen sighting, next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, h := range d.all() {
		d.lookAt(h, now, &seen, soonest)
	}
	d.resting = slices.DeleteFunc(d.resting, func(h *Hold) bool {
		if h.stage == resting && h.due > d.sub.moment(now) {
			soonest(d.sub.time(h.due))
			return false
		}
		if h.stage == resting {
			h.stage = unstarted
			d.ready.push(h)
		}
		return true
	})
	d.rouse()
	if d.held > 0 && d.sub.Timeout > 0 {
		soonest(now.Add(d.sub.Timeout)) // of what may start in the meantime
	}
	if d.lanes.AwayCount() > 0 {
		if !d.asking.IsZero() && now.Sub(d.asking) >= d.comeBack() {
			d.clear(now, "")
			d.rouse()
		}
		overdue, _ := d.lanes.Due(now.Add(-d.comeBack()))
		d.overdue = overdue > 0
		soonest(now.Add(d.comeBack()))
	}
	if next.IsZero() && d.watchWakes.After(now) {
		next = d.watchWakes // or each event that finds nothing held would wake the watch
	}
	d.watchWakes = next
	return seen, next
}

// lookAt checks one Hold against the clock.
func (d *desk) lookAt(h *Hold, now time.Time, seen *sighting, soonest func(time.Time)) {
	at := d.sub.moment(now)
	if h.lost || h.isAcked || h.stage == settling || h.stage == returning {
		// Its lease matters no more, or is minded by those who settle.
	} else if h.until <= at {
		seen.lost = append(seen.lost, h)
	} else {
		soonest(d.sub.time(h.until))
	}
	if d.sub.Timeout == 0 || h.began == 0 || !h.working && h.stage != entrusted {
		return
	}
	deadline := d.sub.time(h.began).Add(d.sub.Timeout)
	switch {
	case deadline.After(now):
		soonest(deadline)
	case !h.late:
		h.late = true
		if d.sub.Mode == Manual && (h.stage == running || h.stage == entrusted) {
			seen.expired = append(seen.expired, h)
		} else {
			seen.late = append(seen.late, h)
		}
		soonest(deadline.Add(stuckAfter))
	case h.working && !h.stuck && !deadline.Add(stuckAfter).After(now):
		h.stuck = true
		seen.stuck = append(seen.stuck, observer.Stuck{About: h.about(), Running: time.Duration(at - h.began)})
	case h.working && !h.stuck:
		soonest(deadline.Add(stuckAfter))
	}
}

// act does what follows from what was seen.
func (s *Subscription) act(seen sighting) {
	for _, h := range seen.lost {
		s.lose(h, nil)
	}
	timeout := &observer.TimeoutError{After: s.Timeout}
	for _, h := range seen.late {
		h.ctx.cancel(context.DeadlineExceeded, timeout)
	}
	for _, h := range seen.expired {
		h.ctx.cancel(context.DeadlineExceeded, timeout)
		if s.desk.expire(h) {
			s.failed(h, timeout)
		}
	}
	for _, st := range seen.stuck {
		tell(s.engine.tell.later.Stuck, st)
	}
}

// expire takes h back from the program, which has had its time.
func (d *desk) expire(h *Hold) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.lost:
		return false // who found that lets it go
	case h.stage == running:
		h.inTrust = true
		d.entrusted++
	case h.stage != entrusted:
		return false // it was settled just now
	}
	h.stage, h.expired = settling, true
	return true
}

// keep restarts the lease of everything held, in one call each third of a lease;
// after a failure in a quarter of that, as there is not much time.
func (s *Subscription) keep() {
	third := max(s.Lease/3, time.Millisecond)
	timer := time.NewTimer(third)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if s.extend() {
				timer.Reset(third)
			} else {
				timer.Reset(max(third/4, time.Millisecond))
			}
		case <-s.keeping.Done():
			return
		}
	}
}

// extend extends everything held, and reports whether every call was answered.
func (s *Subscription) extend() (answered bool) {
	a := s.attached()
	if a.extender == nil {
		return true
	}
	hs, ds := s.desk.keepable(a)
	most := len(hs)
	if b := s.engine.limits.Batch; b > 0 {
		most = b
	}
	answered = true
	for len(hs) > 0 {
		n := min(most, len(hs))
		answered = s.extendSome(a, hs[:n], ds[:n]) && answered
		hs, ds = hs[n:], ds[n:]
	}
	return answered
}

func (s *Subscription) extendSome(a *attachment, hs []*Hold, ds []*backend.Delivery) (answered bool) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(s.keeping, max(s.Lease/3, time.Millisecond))
	defer cancel()
	err := a.extender.Extend(ctx, ds)
	if s.keeping.Err() != nil {
		return true
	}
	kept, troubled := 0, 0
	until := start.Add(s.Lease)
	for i, h := range hs {
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			s.desk.renew(h, until)
			kept++
		case errors.Is(e, backend.ErrLeaseLost):
			// What is being acknowledged on receipt has no lease any more as soon
			// as that has arrived; the watch minds the time until the answer.
			if !s.desk.confirming(h) {
				s.lose(h, e)
			}
		default:
			troubled++ // the watch sees whether the lease runs out
		}
	}
	if troubled > 0 {
		s.engine.tell.failed(observer.Extend, s.about(), troubled, err)
	}
	if kept > 0 {
		tell(s.engine.tell.later.Extended,
			observer.Extended{Topic: s.Topic, Group: s.Group, Events: kept, Took: time.Since(start)})
	}
	return troubled == 0
}

// keepable lists what is to be kept of one attachment.
func (d *desk) keepable(a *attachment) (hs []*Hold, ds []*backend.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.all() {
		if h.read.attachment == a && !h.lost && !h.isAcked && h.stage != returning {
			hs = append(hs, h)
			ds = append(ds, &h.delivery)
		}
	}
	return hs, ds
}

// confirming reports whether h is being acknowledged before it runs.
func (d *desk) confirming(h *Hold) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return h.confirming()
}

// renew notes that the lease of h runs to then. If that was found to be over meanwhile, h
// does not come again before: what awaits it, or a later receipt of it, awaits it so long.
func (d *desk) renew(h *Hold, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.until = max(h.until, d.sub.moment(until))
	key, keyed := d.sub.laneOf(h)
	if !h.lost || !keyed {
		return
	}
	if due := d.lanes.Awaited(key, h.delivery.Position); !due.IsZero() && due.Before(d.leaseEnd(h)) {
		d.lanes.Away(key, h.delivery.Position, d.leaseEnd(h), false)
	}
}
