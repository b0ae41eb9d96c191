package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A keeper extends the leases of all Holds, each third of a lease. After a failure it tries
// again after a twelfth of a lease, because little of the lease is left.
type keeper struct {
	*recurring
	sub *Subscription
}

func newKeeper(s *Subscription) *keeper {
	k := &keeper{sub: s}
	third := max(s.Lease/3, time.Millisecond)
	k.recurring = recur(third, func(r *recurring) {
		if k.extend(r.ctx) {
			r.in(third)
		} else {
			r.in(max(third/4, time.Millisecond))
		}
	})
	return k
}

// extend extends the leases of all Holds. It reports whether the broker answered for each
// Hold; the answer may be that the lease is lost.
func (k *keeper) extend(ctx context.Context) (answered bool) {
	a := k.sub.attachment.Load()
	if a.extender == nil {
		return true
	}
	hs, ds := k.sub.sched.keepable(a)
	most := len(hs)
	if b := k.sub.engine.limits.Batch; b > 0 {
		most = b
	}
	answered = true
	for len(hs) > 0 {
		n := min(most, len(hs))
		answered = k.extendSome(ctx, a, hs[:n], ds[:n]) && answered
		hs, ds = hs[n:], ds[n:]
	}
	return answered
}

func (k *keeper) extendSome(ctx context.Context, a *attachment, hs []*Hold, ds []*backend.Delivery) (answered bool) {
	start := time.Now()
	call, cancel := context.WithTimeout(ctx, max(k.sub.Lease/3, time.Millisecond))
	defer cancel()
	err := a.extend(call, ds)
	if ctx.Err() != nil {
		return true
	}
	kept, troubled := 0, 0
	until := start.Add(k.sub.Lease)
	for i, h := range hs {
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			k.sub.sched.renew(h, until)
			kept++
		case errors.Is(e, backend.ErrLeaseLost):
			k.sub.sched.refused(h, e)
		default:
			troubled++ // the watcher notices if the lease expires
		}
	}
	if troubled > 0 {
		k.sub.notifier.failed(observer.Extend, k.sub.about(), troubled, err)
	}
	if kept > 0 {
		tell(k.sub.notifier.later.Extended,
			observer.Extended{Topic: k.sub.Topic, Group: k.sub.Group, Events: kept, Took: time.Since(start)})
	}
	return troubled == 0
}

// keepable returns the Holds of attachment a whose leases are to be extended, and copies of
// their deliveries, because free changes the delivery of a Hold.
func (d *scheduler) keepable(a *attachment) (hs []*Hold, ds []*backend.Delivery) {
	d.mu.Lock()
	defer d.unlock()
	for _, h := range d.reads.all() {
		if h.read.attachment == a && !h.lost && !h.leaseless() && h.state != returning {
			lent := h.delivery
			hs, ds = append(hs, h), append(ds, &lent)
		}
	}
	return hs, ds
}

// renew notes that the lease of h does not end before until.
func (d *scheduler) renew(h *Hold, until time.Time) {
	d.mu.Lock()
	defer d.unlock()
	h = h.present()
	h.until = max(h.until, d.sub.moment(until))
}

// refused notes that the broker refused to extend the lease of h, because the lease is
// lost. In state confirming, refused does nothing, because the broker may have refused after
// it acknowledged h. If the lease expires in this state, the watcher notices it.
func (d *scheduler) refused(h *Hold, err error) {
	d.mu.Lock()
	defer d.unlock()
	if h = h.present(); h.state != confirming {
		d.lose(h, err)
	}
}

// loseAll notes that the Holds of a lost group have lost their leases, and counts them.
func (d *scheduler) loseAll(a *attachment, why error) (lost int) {
	d.mu.Lock()
	defer d.unlock()
	for _, l := range d.lanes.byKey {
		l.away = nil
	}
	for _, h := range d.reads.all() {
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
		why = fmt.Errorf("%w: it was not extended for %v", backend.ErrLeaseLost, s.Lease)
	}
	tell(s.notifier.later.LeaseLost, observer.LeaseLost{
		About: h.about(), Running: running, Held: time.Duration(s.moment(time.Now()) - h.read.arrived), Err: why,
	})
}
