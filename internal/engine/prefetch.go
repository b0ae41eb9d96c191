package engine

import (
	"context"
	"time"
)

const (
	maxRead      = 512                    // the most messages in one Receive
	prefetchTime = 100 * time.Millisecond // how long prefetched events keep the handlers busy
	hoardTime    = time.Second            // a prefetched event that waits longer is given back
)

// prefetch decides how many messages are read ahead of the handlers.
type prefetch struct {
	ledger       *ledger
	room         chan struct{} // wakes the fetcher when it may read
	fetcherWaits bool          // the fetcher waits for room
	chasing      int           // the number of calls under way that give back early events
	average      time.Duration // length of a run to its end or, in manual mode, to settlement; 0: not measured
}

func (p *prefetch) init(l *ledger) {
	p.ledger, p.room = l, make(chan struct{}, 1)
}

// measure keeps a moving average of how long runs take.
func (p *prefetch) measure(took time.Duration) {
	if p.average == 0 {
		p.average = took
	}
	p.average = max(p.average+(took-p.average)/8, 1)
}

// wanted returns how many messages the fetcher may ask for: one for each free handler, and
// as many as ahead allows, minus the ready Holds. While many Holds are ready it returns 0,
// so that reads are large. It also returns 0 while early events are given back, because a
// Receive after that brings these events late enough to run.
func (p *prefetch) wanted() int {
	if p.ledger.closed || p.chasing > 0 {
		return 0
	}
	free := p.ledger.sub.Concurrency - p.ledger.working
	ready := p.ledger.ready.len()
	ahead := p.ahead()
	if ready >= free && ready > ahead/2 {
		return 0
	}
	return min(max(free+ahead-ready, 0), maxRead)
}

// ahead returns how many messages may be prefetched: as many as handlers can start in 100
// ms. It returns 0 if no run was measured yet, or if leases cannot be extended.
func (p *prefetch) ahead() int {
	if p.average == 0 || p.ledger.sub.attachment.Load().extender == nil {
		return 0
	}
	return min(int(time.Duration(p.ledger.sub.Concurrency)*prefetchTime/p.average), p.ledger.sub.MaxInFlight)
}

// keyShare returns how many Holds may queue behind a Hold of their key in state resting.
func (p *prefetch) keyShare() int { return max(p.ledger.sub.MaxInFlight/4, 1) }

// tellRoom wakes the fetcher if it waits for room and may read now.
func (p *prefetch) tellRoom() {
	if p.fetcherWaits && p.wanted() > 0 {
		p.fetcherWaits = false
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
}

// awaitRoom waits until wanted returns more than 0, and returns that number. It returns 0
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

// hoards reports whether all handlers are busy and the first ready Hold has waited for
// hoardTime. It returns false if this Hold cannot be given back without counting an
// attempt. The result again is the next moment to call hoards. If again is zero, no call is
// planned.
func (p *prefetch) hoards(now moment) (yes bool, again moment) {
	if p.ledger.ready.len() == 0 || p.ledger.closed || p.ledger.working < p.ledger.sub.Concurrency {
		return false, 0
	}
	first := p.ledger.ready.first()
	if again = first.read.arrived + moment(hoardTime); again > now {
		return false, again
	}
	return first.read.attachment.refunds, 0
}

// giveBackUnstarted gives back the ready Holds, with their lanes, because another member may
// be idle. It also raises the average, so that less is prefetched.
func (d *scheduler) giveBackUnstarted() {
	d.mu.Lock()
	defer d.unlock()
	for d.ready.len() > 0 {
		d.stepBack(d.ready.pop(), 0, false)
	}
	d.average = max(d.average, hoardTime)
	d.tellRoom()
}

// watchHoard makes the watcher look at the moment when the first ready Hold has waited for
// hoardTime.
func (p *prefetch) watchHoard() {
	if p.ledger.ready.len() > 0 && p.ledger.working == p.ledger.sub.Concurrency {
		p.ledger.nudgeWatch(p.ledger.sub.time(p.ledger.ready.first().read.arrived).Add(hoardTime))
	}
}
