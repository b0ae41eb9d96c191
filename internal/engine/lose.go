package engine

import (
	"context"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// lose notes that h may be with another member by now: if its handler runs it
// is cancelled, otherwise h is let go. What is being settled is not touched.
func (s *Subscription) lose(h *Hold, why error) {
	s.desk.mu.Lock()
	l, ok := s.desk.lose(h)
	s.desk.mu.Unlock()
	if ok {
		s.afterLoss(l, why)
	}
}

// A loss is a Hold that was lost, and whether its handler was running then.
type loss struct {
	hold    *Hold
	running bool
}

// lose takes h off the desk, with the lock held, if it is there to be lost.
// Others of its key wait for it to come again.
func (d *desk) lose(h *Hold) (loss, bool) {
	if h.lost || h.isAcked || h.stage >= settling {
		return loss{}, false
	}
	h.lost = true
	if !h.working {
		d.ready.remove(h)
		is := func(other *Hold) bool { return other == h }
		d.suspects = slices.DeleteFunc(d.suspects, is)
		d.resting = slices.DeleteFunc(d.resting, is)
		d.awaitReturn(h, d.leaseEnd(h))
		d.leaveLane(h)
	}
	return loss{h, h.working}, true
}

// afterLoss tells of a loss, cancels the handler if it runs, and lets the Hold go
// otherwise.
func (s *Subscription) afterLoss(l loss, why error) {
	s.tellLost(l.hold, l.running, why)
	l.hold.ctx.cancel(context.Canceled, errLeaseLost(why))
	if !l.running {
		s.desk.release([]*Hold{l.hold}, errLeaseLost(why))
	}
}

// again is what r brings that was handed out before: what says so; or, as a broker may
// have forgotten that, what is not behind all before it. The rest is news.
func (d *desk) again(r *read) (positions map[string]bool) {
	for i := range r.holds {
		h := &r.holds[i]
		if h.delivery.Attempt != 1 || h.delivery.Again || h.delivery.Position <= d.furthest && d.furthest != "" {
			if positions == nil {
				positions = map[string]bool{}
			}
			positions[h.delivery.Position] = true
		} else {
			r.news = true
		}
		d.furthest = max(d.furthest, h.delivery.Position)
	}
	return positions
}

// overtaken loses the older holds of what comes again: their leases must have passed.
// One that runs keeps its place in its lane until it ends. A Receive that took longer
// than a lease may itself bring a message more than once.
func (d *desk) overtaken(r *read, again map[string]bool) (losses []loss) {
	if len(again) == 0 {
		return nil
	}
	later := map[string]bool{}
	for i := len(r.holds) - 1; i >= 0; i-- {
		if h := &r.holds[i]; again[h.delivery.Position] {
			h.cameAgain = later[h.delivery.Position]
			later[h.delivery.Position] = true
		}
	}
	for _, old := range d.all() {
		if again[old.delivery.Position] {
			if l, ok := d.lose(old); ok {
				losses = append(losses, l)
			}
			old.cameAgain = true
		}
	}
	return losses
}

// awaitReturn lets those of h's key wait for it to come again, due at the given
// moment; if it goes to another member they are let go (see clear), but not
// before it is with the backend again. What came from a group that is gone does
// not come again, and what has done so while it ran is not waited for once more.
func (d *desk) awaitReturn(h *Hold, due time.Time) {
	if key, keyed := d.sub.laneOf(h); keyed && h.lane != laneless && !h.cameAgain && h.read.attachment == d.sub.attached() {
		d.lanes.Away(key, h.delivery.Position, due, h.stage == returning)
		d.nudgeWatch(time.Now().Add(d.comeBack()))
	}
}

// left notes that h, on its way back, has left us: given back, or to be due when
// its lease ends.
func (d *desk) left(h *Hold, err error) {
	key, keyed := d.sub.laneOf(h)
	if !keyed || h.cameAgain { // the other speaks for itself
		return
	}
	due := time.Now()
	if err != nil {
		due = d.leaseEnd(h)
	}
	d.lanes.Left(key, h.delivery.Position, due)
}

// leaseEnd is when h is due again at the latest, if nobody extends its lease.
func (d *desk) leaseEnd(h *Hold) time.Time { return d.sub.time(h.until).Add(d.sub.inTransit()) }

// forget releases h, whose lease is lost and whose run has failed.
func (s *Subscription) forget(h *Hold) {
	s.desk.mu.Lock()
	s.desk.awaitReturn(h, s.desk.leaseEnd(h))
	s.desk.mu.Unlock()
	s.desk.release([]*Hold{h}, errLeaseLost(nil))
}

// loseAll loses what came through an attachment whose group is gone.
func (s *Subscription) loseAll(a *attachment, why error) {
	s.desk.mu.Lock()
	all := s.desk.all()
	s.desk.mu.Unlock()
	for _, h := range all {
		if h.read.attachment == a {
			s.lose(h, why)
		}
	}
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	s.desk.furthest = ""
	for _, h := range s.desk.lanes.Forget() {
		s.desk.admit(h)
	}
	s.desk.rouse()
}

func (s *Subscription) tellLost(h *Hold, running bool, why error) {
	s.counts.leasesLost.Add(1)
	if why == nil {
		why = backend.ErrLeaseLost
	}
	tell(s.engine.tell.later.LeaseLost, observer.LeaseLost{About: h.about(), Running: running, Err: why})
}
