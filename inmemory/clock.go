package inmemory

import (
	"math"
	"time"
)

// A clock measures moments from its start, by the monotonic clock: a change of
// the wall clock moves nothing.
type clock struct{ start time.Time }

type moment = time.Duration

const never moment = math.MaxInt64

func (c clock) now() moment             { return time.Since(c.start) }
func (c clock) time(m moment) time.Time { return c.start.Add(m) }

// after returns now plus d, or never if there is no such moment.
func after(now moment, d time.Duration) moment {
	switch {
	case d <= 0:
		return now
	case d > never-now:
		return never
	}
	return now + d
}
