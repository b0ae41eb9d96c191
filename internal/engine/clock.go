package engine

import (
	"math"
	"time"
)

// A moment is a time in eight bytes, because each Hold has several: nanoseconds of a
// clock. Zero: none.
type moment int64

// A clock has the time from which moments are counted.
type clock struct{ epoch time.Time }

// newClock returns a clock that starts now.
func newClock() clock { return clock{time.Now().Add(-1)} }

// moment returns t as a moment.
func (c clock) moment(t time.Time) moment { return moment(t.Sub(c.epoch)) }

// time returns m as a time; the zero time for none.
func (c clock) time(m moment) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(m))
}

// plus returns the moment d after m, or the greatest moment if the sum overflows.
func (m moment) plus(d time.Duration) moment {
	if sum := m + moment(d); sum >= m {
		return sum
	}
	return math.MaxInt64
}
