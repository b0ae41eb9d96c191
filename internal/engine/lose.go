package engine

import (
	"context"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// lose notes that h may be with another member by now: if its handler runs it
// is cancelled, otherwise h is let go. What is being settled is not touched.
func (s *Subscription) lose(h *Hold, why error) {
	s.desk.mu.Lock()
	if h.lost || h.isAcked || h.stage >= settling {
		s.desk.mu.Unlock()
		return
	}
	h.lost = true
	running := h.working
	if !running {
		s.desk.withdraw(h)
	}
	s.desk.mu.Unlock()

	s.tellLost(h, why)
	h.ctx.cancel(context.Canceled, errLeaseLost(why))
	if !running {
		s.desk.release([]*Hold{h}, errLeaseLost(why))
	}
}

// withdraw takes h off the desk before it has started.
func (d *desk) withdraw(h *Hold) {
	d.ready.remove(h)
	is := func(other *Hold) bool { return other == h }
	d.suspects = slices.DeleteFunc(d.suspects, is)
	d.resting = slices.DeleteFunc(d.resting, is)
}

// loseAll loses what came through an attachment whose group is gone.
func (s *Subscription) loseAll(a *attachment, why error) {
	s.desk.mu.Lock()
	all := s.desk.all()
	s.desk.mu.Unlock()
	for _, h := range all {
		if h.attachment == a {
			s.lose(h, why)
		}
	}
}

func (s *Subscription) tellLost(h *Hold, why error) {
	s.counts.leasesLost.Add(1)
	if why == nil {
		why = backend.ErrLeaseLost
	}
	tell(s.engine.tell.later.LeaseLost, observer.LeaseLost{About: h.about(), Running: h.working, Err: why})
}
