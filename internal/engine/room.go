package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

const (
	maxRead      = 512                    // messages in one Receive
	prefetchTime = 100 * time.Millisecond // of work that may be held unstarted
)

// wanted is how many messages the fetcher may ask for: for the handlers
// that are free and, once a run was measured, as many as they can start in 100
// ms. While plenty is ready it waits, so that reads are large.
func (d *desk) wanted() int {
	if d.closed || d.paused {
		return 0
	}
	free := d.sub.Concurrency - d.working
	ready := d.ready.len()
	ahead := d.ahead()
	if ready >= free && ready > ahead/2 {
		return 0
	}
	n := max(free+ahead-ready, 0)
	if n > 0 && d.overdue && d.sub.attached().extender != nil {
		n++ // or one that comes again and again would fill each Receive, which proves nothing
	}
	return min(n, maxRead)
}

// ahead is how many unstarted messages may be held.
func (d *desk) ahead() int {
	if !d.measured || d.sub.attached().extender == nil {
		return 0
	}
	run := max(d.average, time.Microsecond)
	if run <= d.brisk {
		return d.sub.MaxInFlight
	}
	return int(time.Duration(d.sub.Concurrency) * prefetchTime / run)
}

// tellRoom wakes the fetcher if it waits for room and there is some.
func (d *desk) tellRoom() {
	if d.fetcherWaits && d.wanted() > 0 {
		d.fetcherWaits = false
		select {
		case d.room <- struct{}{}:
		default:
		}
	}
}

// awaitRoom waits until something may be read, and returns how much. It returns
// 0 when ctx is done.
func (d *desk) awaitRoom(ctx context.Context) int {
	for {
		if ctx.Err() != nil {
			return 0
		}
		d.mu.Lock()
		n := d.wanted()
		d.fetcherWaits = n == 0
		d.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-d.room:
		case <-ctx.Done():
		}
	}
}

// patience is how long an event that is due waits for places to come free by
// themselves.
const patience = 10 * time.Millisecond

// What yields its place is sent away for leastYield, during which nothing else has
// to; for twice as long each time that this has not brought the event it was for, up
// to mostYield.
const (
	leastYield = 2 * patience
	mostYield  = 4 * leastYield
)

// yield takes off the desk as many of those that wait behind an event that is
// away as such events are due, those published last, to make room for them. It
// returns when to ask again; zero if nothing is away.
func (d *desk) yield(now time.Time) (again time.Time, yielded []sentBack) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, first := d.lanes.Due(now.Add(-patience))
	if due == 0 {
		if !first.IsZero() {
			first = first.Add(patience)
		}
		return first, nil
	}
	if d.nextYield.After(now) { // what comes in the meantime is not sent back at once
		return d.nextYield, nil
	}
	if d.ready.len() > 0 { // what is started gives its place back
		return now.Add(patience), nil
	}
	if !first.Equal(d.yieldedTo) {
		d.yieldedTo, d.yieldFor = first, leastYield
	} else {
		d.yieldFor = min(2*d.yieldFor, mostYield)
	}
	back := now.Add(d.yieldFor)
	var behind []*Hold
	for _, h := range d.all() {
		if h.stage == unstarted && h.lane == queued {
			behind = append(behind, h)
		}
	}
	slices.SortFunc(behind, func(a, b *Hold) int { return strings.Compare(b.delivery.Position, a.delivery.Position) })
	for _, h := range behind[:min(due, len(behind))] {
		h.stage = returning
		d.awaitReturn(h, back)
		d.leaveLane(h)
		yielded = append(yielded, sentBack{hold: h, due: back, refund: true})
	}
	d.nextYield = back
	return now.Add(d.comeBack()), yielded
}

// free releases hs, with the lock held, and returns what the limiter is to be
// told.
func (d *desk) free(hs []*Hold, err error) (f limiter.Released) {
	for _, h := range hs {
		if h.stage == released {
			continue
		}
		if h.inTrust {
			d.entrusted--
			h.inTrust = false
		}
		if h.stage == returning {
			d.left(h, err)
		}
		h.stage = released
		d.leaveLane(h)
		f.Settled++
		f.Bytes += h.size
		f.Took += h.took
		if h.failed {
			f.Failed++
		}
		if h.wait != nil && !h.wait.receipt {
			h.wait.end(err)
			h.ctx.finish() // last: who waits may do so with this very context
		}
		d.held--
		d.dropRead(h.read) // the last look at h
	}
	d.tellQuiet()
	return f
}

// dropRead forgets a read of which nothing is held any more.
func (d *desk) dropRead(r *read) {
	if r.left--; r.left > 0 {
		return
	}
	last := len(d.reads) - 1
	d.reads[r.index] = d.reads[last]
	d.reads[r.index].index = r.index
	d.reads[last] = nil
	d.reads = d.reads[:last]
	d.sub.giveBack(r)
}
