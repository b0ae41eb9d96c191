package ledger

import (
	"slices"
	"time"
)

// maxUnclaimed is how long a ready Hold may wait for a worker before it is given back.
const maxUnclaimed = time.Second

// watchUnclaimed sets the alarm for giveBackUnclaimed to the time when the oldest ready Hold will
// have waited for maxUnclaimed.
func (l *Ledger) watchUnclaimed() {
	if l.unclaimed.at != 0 || l.working < l.Concurrency && (l.readyByClass[redelivered] == 0 || l.mayRun(redelivered)) {
		return
	}
	for _, s := range l.readySources() {
		if s.Exclusive && l.working >= l.Concurrency {
			continue // no other member could get them
		}
		for c := range s.ready {
			if q := &s.ready[c]; class(c) != suspect && q.len() > 0 && (s.CanDelay || s.CanExtend) && (l.working >= l.Concurrency || !l.mayRun(class(c))) {
				l.ringBy(&l.unclaimed, max(q.first().came.Plus(maxUnclaimed), l.Now.Plus(maxUnclaimed/4)))
			}
		}
	}
}

// giveBackUnclaimed gives back the Holds that no worker has taken for maxUnclaimed, because another
// member may be idle. It also raises the average run time, which reduces prefetching.
func (l *Ledger) giveBackUnclaimed(now Instant) {
	for _, s := range slices.Clone(l.readySources()) {
		for c := range s.ready {
			l.giveBackQueue(s, class(c), now)
		}
	}
	l.watchUnclaimed()
}

func (l *Ledger) giveBackQueue(s *Source, c class, now Instant) {
	q := &s.ready[c]
	allBusy := l.working >= l.Concurrency
	if c == suspect || q.len() == 0 || q.first().came.Plus(maxUnclaimed) > now || !allBusy && l.mayRun(c) {
		return
	}
	if !allBusy {
		for q.len() > 0 {
			l.postpone(q.first(), l.redeliveredDue(q.len()), false)
		}
		return
	}
	if !s.CanDelay || s.Exclusive {
		return
	}
	l.average = max(l.average, maxUnclaimed)
	l.do(Effect{Kind: EndRead, Source: s}) // otherwise this Receive would return the same messages again
	for q.len() > 0 {
		h := q.first()
		n := h.lane
		l.giveBack(h, 0)
		for n != nil && n.head == nil && len(n.queue) > 0 {
			l.giveBack(n.queue[0], n.queue[0].Due)
		}
	}
}

// redeliveredDue returns when a redelivered Hold with n others ahead of it may run.
func (l *Ledger) redeliveredDue(n int) Instant {
	wait := time.Duration(n) * l.average / time.Duration(max(l.MaxRedelivered, 1))
	return l.Now.Plus(min(max(wait, firstFloor), maxRedeliveredWait))
}

const maxRedeliveredWait = 10 * time.Second

// spillRedelivered postpones redelivered Holds, which leaves slots for others.
func (l *Ledger) spillRedelivered(s *Source) {
	for q := &s.ready[redelivered]; q.len() > max(l.MaxInFlight/4, 1); {
		l.postpone(q.last(), l.redeliveredDue(q.len()), false)
	}
}
