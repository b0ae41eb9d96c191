package ledger

import (
	"container/heap"
	"math"
	"time"
)

// An Instant is a point in time, in nanoseconds since the epoch of the caller's clock. The zero
// Instant means "no time".
type Instant int64

// Plus returns m plus d, or the greatest Instant if the sum overflows.
func (m Instant) Plus(d time.Duration) Instant {
	if sum := m + Instant(d); sum >= m {
		return sum
	}
	return math.MaxInt64
}

// An alarm calls ring at a set time. Apart from ring, its zero value is ready to use.
type alarm struct {
	at    Instant // zero if it is not set
	index int
	ring  func(now Instant)
}

// alarms is a heap of the alarms that are set, earliest first.
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *alarms) Push(x any) {
	x.(*alarm).index = len(*a)
	*a = append(*a, x.(*alarm))
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return x
}

// set sets a to ring at the given time. A zero time cancels the alarm.
func (l *Ledger) set(a *alarm, at Instant) {
	switch was := a.at; {
	case at == was:
	case at == 0:
		heap.Remove(&l.alarms, a.index)
		a.at = 0
	case was == 0:
		a.at = at
		heap.Push(&l.alarms, a)
	default:
		a.at = at
		heap.Fix(&l.alarms, a.index)
	}
}

// ringBy makes a ring at the given time, unless it is already set for an earlier one.
func (l *Ledger) ringBy(a *alarm, at Instant) {
	if a.at == 0 || at < a.at {
		l.set(a, at)
	}
}

// Next returns when the caller must call Tick, or zero if no alarm is set.
func (l *Ledger) Next() Instant {
	if len(l.alarms) == 0 {
		return 0
	}
	return l.alarms[0].at
}

// Tick rings the alarms that are due by now.
func (l *Ledger) Tick(now Instant) {
	for len(l.alarms) > 0 && l.alarms[0].at <= now {
		a := heap.Pop(&l.alarms).(*alarm)
		a.at = 0
		a.ring(now)
	}
}
