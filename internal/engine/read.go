package engine

import (
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A read has the Holds of one Receive, which are allocated together.
type read struct {
	sub        *Subscription
	attachment *attachment
	asked      moment // when its Receive was called, see Subscription.tick
	arrived    moment // when its Receive returned
	holds      []Hold
	left       int // Holds that are not released
	index      int // the place of the read in reads.list
}

// newRead returns a read of n Holds.
func newRead(s *Subscription, a *attachment, n int) *read {
	r := &read{sub: s, attachment: a, holds: make([]Hold, n), left: n}
	ctxs := make([]runCtx, n)
	for i := range r.holds {
		r.holds[i].read, r.holds[i].ctx = r, &ctxs[i]
	}
	return r
}

// hold copies the deliveries of one Receive into Holds and clears ds, which is lent. Leases
// are counted from asked, when Receive was called.
func (f *fetcher) hold(a *attachment, ds []backend.Delivery, asked moment) *read {
	r := newRead(f.sub, a, len(ds))
	r.asked, r.arrived = asked, f.sub.moment(time.Now())
	until := asked.plus(f.sub.Lease)
	for i := range ds {
		h := &r.holds[i]
		h.delivery, h.until = ds[i], until
		if group := letter.Restore(&h.delivery.Message); group == f.sub.Group {
			h.redriven = true
		} else if group != "" {
			h.delivery.Err = errElsewhere
		}
		h.size = int64(ds[i].Size())
		if most := f.sub.MaxReceive; most > 0 && h.size > most && h.delivery.Err == nil {
			h.delivery.Err = fmt.Errorf("%w: %d bytes, more than MaxReceive, %d", backend.ErrTooLarge, h.size, most)
		}
		h.attempt = f.sub.attempts.of(&ds[i])
	}
	clear(ds) // otherwise the lent slice would keep payloads in memory until the next Receive
	return r
}

// reads lists each read that has a Hold which is not released.
type reads struct {
	list []*read
	held int // Holds that are not released
}

func (rs *reads) add(r *read) {
	r.index = len(rs.list)
	rs.list = append(rs.list, r)
	rs.held += len(r.holds)
}

// drop notes that one Hold of r is released.
func (rs *reads) drop(r *read) {
	rs.held--
	if r.left--; r.left > 0 {
		return
	}
	last := len(rs.list) - 1
	rs.list[r.index] = rs.list[last]
	rs.list[r.index].index = r.index
	rs.list[last] = nil
	rs.list = rs.list[:last]
}

// all returns the Holds that are not released.
func (rs *reads) all() (hs []*Hold) {
	hs = make([]*Hold, 0, rs.held)
	for _, r := range rs.list {
		for i := range r.holds {
			if r.holds[i].state != released {
				hs = append(hs, &r.holds[i])
			}
		}
	}
	return hs
}
