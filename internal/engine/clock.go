package engine

import (
	"math"
	"time"
)

// A moment is a time, in nanoseconds after the epoch of a clock. Zero means no time. It has
// eight bytes, a third of a time.Time, because each Hold has several.
type moment int64

// A clock converts between time.Time and moment.
type clock struct{ epoch time.Time }

// newClock returns a clock for which now is moment 1, because 0 means no time.
func newClock() clock { return clock{time.Now().Add(-1)} }

// moment returns t as a moment.
func (c clock) moment(t time.Time) moment { return moment(t.Sub(c.epoch)) }

// time returns m as a time.Time; the zero Time if m is zero.
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
