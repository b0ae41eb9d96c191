package engine

import (
	"math"
	"time"
)

// A moment is a time in eight bytes, as there are several in every Hold:
// nanoseconds of a clock. Zero: none.
type moment int64

// A clock is where moments are counted from.
type clock struct{ epoch time.Time }

// newClock returns one for all that happens from now on.
func newClock() clock { return clock{time.Now().Add(-1)} }

// moment returns t as one.
func (c clock) moment(t time.Time) moment { return moment(t.Sub(c.epoch)) }

// time returns m as a time; the zero time for none.
func (c clock) time(m moment) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(m))
}

// plus returns m and d later; without end if there is no such moment.
func (m moment) plus(d time.Duration) moment {
	if sum := m + moment(d); sum >= m {
		return sum
	}
	return math.MaxInt64
}
