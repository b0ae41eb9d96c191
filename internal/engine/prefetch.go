package engine

import (
	"context"
	"time"
)

const (
	maxRead      = 512                    // messages in one Receive
	prefetchTime = 100 * time.Millisecond // of work that may be held unstarted
	hoardTime    = time.Second            // after which unstarted work is given back
)

// prefetch says how much is read ahead of the handlers.
type prefetch struct {
	room         chan struct{} // for the fetcher, when it may read
	fetcherWaits bool
	chasing      int           // calls under way that give back early events
	measured     bool          // average is valid
	average      time.Duration // from the start of a run to its end or, in manual mode, to settlement
	brisk        time.Duration // runs no longer than this could start all that may be held
}

func (p *prefetch) init(s *Subscription) {
	p.room = make(chan struct{}, 1)
	p.brisk = time.Duration(s.Concurrency) * prefetchTime / time.Duration(s.MaxInFlight)
}

// measure keeps a moving average of how long runs take.
func (p *prefetch) measure(took time.Duration) {
	if !p.measured {
		p.average, p.measured = took, true
		return
	}
	p.average += (took - p.average) / 8
}

// wanted is how many messages the fetcher may ask for: for the handlers that are
// free and, once a run was measured, as many as they can start in 100 ms. While
// plenty is ready it waits, so that reads are large. It also waits while something
// that arrived too early is given back: what the next Receive brings is then late
// enough to run.
func (d *scheduler) wanted() int {
	if d.closed || d.chasing > 0 {
		return 0
	}
	free := d.sub.Concurrency - d.working
	ready := d.ready.len()
	ahead := d.ahead()
	if ready >= free && ready > ahead/2 {
		return 0
	}
	return min(max(free+ahead-ready, 0), maxRead)
}

// ahead is how many unstarted messages may be held.
func (d *scheduler) ahead() int {
	if !d.measured || d.sub.attached().extender == nil {
		return 0
	}
	if d.average <= d.brisk {
		return d.sub.MaxInFlight
	}
	return int(time.Duration(d.sub.Concurrency) * prefetchTime / d.average)
}

// keyShare is how many events may queue behind one of their key that rests here.
func (d *scheduler) keyShare() int { return max(d.sub.MaxInFlight/4, 1) }

// tellRoom wakes the fetcher if it waits for room and there is some.
func (d *scheduler) tellRoom() {
	if d.fetcherWaits && d.wanted() > 0 {
		d.fetcherWaits = false
		select {
		case d.room <- struct{}{}:
		default:
		}
	}
}

// awaitRoom waits until something may be read, and returns how much. It returns 0
// when ctx is done.
func (d *scheduler) awaitRoom(ctx context.Context) int {
	for ctx.Err() == nil {
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
	return 0
}

// hoards reports whether something waits unstarted for longer than hoardTime while
// all handlers are busy, and when to look again; zero: nothing waits.
func (d *scheduler) hoards(now moment) (yes bool, again moment) {
	if d.ready.len() == 0 || d.closed || d.working < d.sub.Concurrency {
		return false, 0
	}
	first := d.ready.first()
	if again = first.read.arrived + moment(hoardTime); again > now {
		return false, again
	}
	return d.sub.canRefund(first.read.attachment), 0
}

// giveBackUnstarted gives back the Holds that have not started, with their lanes,
// because another member may be idle.
func (d *scheduler) giveBackUnstarted() {
	d.mu.Lock()
	defer d.unlock()
	for d.ready.len() > 0 {
		d.stepBack(d.ready.pop(), 0, false)
	}
	d.average, d.measured = max(d.average, hoardTime), true
	d.tellRoom()
}

// watchHoard sees to it that the watch looks for Holds that wait too long.
func (d *scheduler) watchHoard() {
	if d.ready.len() > 0 && d.working == d.sub.Concurrency {
		d.nudgeWatch(d.sub.time(d.ready.first().read.arrived).Add(hoardTime))
	}
}
