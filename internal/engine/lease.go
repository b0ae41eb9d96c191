package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

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
	hs, ds := s.sched.keepable(a)
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
	err := a.extend(ctx, ds)
	if s.keeping.Err() != nil {
		return true
	}
	kept, troubled := 0, 0
	until := start.Add(s.Lease)
	for i, h := range hs {
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			s.sched.renew(h, until)
			kept++
		case errors.Is(e, backend.ErrLeaseLost):
			s.sched.refused(h, e)
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

// keepable lists the Holds of one attachment whose leases are to be extended.
func (d *scheduler) keepable(a *attachment) (hs []*Hold, ds []*backend.Delivery) {
	d.mu.Lock()
	defer d.unlock()
	for _, h := range d.all() {
		if h.read.attachment == a && !h.lost && !h.leaseless() && h.state != returning {
			hs = append(hs, h)
			ds = append(ds, &h.delivery)
		}
	}
	return hs, ds
}

// renew notes that the lease of h runs to then.
func (d *scheduler) renew(h *Hold, until time.Time) {
	d.mu.Lock()
	defer d.unlock()
	h.until = max(h.until, d.sub.moment(until))
}

// refused notes that the lease of h could not be extended. An event that is being
// acknowledged on receipt may have no lease because the broker has acknowledged it, so
// it is not lost. The watch loses it when its lease expires.
func (d *scheduler) refused(h *Hold, err error) {
	d.mu.Lock()
	defer d.unlock()
	if h.state != confirming {
		d.lose(h, err)
	}
}

// loseAll loses the leases of all Holds of an attachment whose group is gone.
func (d *scheduler) loseAll(a *attachment, why error) (lost int) {
	d.mu.Lock()
	defer d.unlock()
	for _, l := range d.lanes.byKey {
		l.until, l.first = 0, ""
	}
	for _, h := range d.all() {
		if h.read.attachment == a && h.state != released {
			lost++
			d.lose(h, why)
		}
	}
	d.rouse()
	return lost
}

func (s *Subscription) tellLost(h *Hold, running bool, why error) {
	s.counts.leasesLost.Add(1)
	if why == nil {
		why = backend.ErrLeaseLost
	}
	tell(s.engine.tell.later.LeaseLost, observer.LeaseLost{About: h.about(), Running: running, Err: why})
}
