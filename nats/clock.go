package nats

import (
	"sync/atomic"
	"time"
)

// A clock counts nanoseconds for leases. Go's monotonic clock stops while the machine is
// suspended, but leases end by the clock of the server. So a clock adds each step of the wall
// clock ahead of the monotonic clock. A step of the wall clock back changes nothing.
//
// If somebody sets the wall clock forward, leases end early for this process. That is safe,
// because the process then only assumes that it has lost them.
type clock struct {
	epoch time.Time
	ahead atomic.Int64 // wall clock minus monotonic clock, as of the last step
	slept atomic.Int64 // sum of all steps ahead
}

// step is the smallest step of the wall clock that counts. A smaller difference may come
// from a pause between the readings of the two clocks.
const step = time.Second

// now returns the nanoseconds since the epoch. An earlier time.Time must not be converted
// later, because the machine may have been suspended since.
func (c *clock) now() int64 {
	t := time.Now()
	return c.read(int64(t.Sub(c.epoch)), int64(t.Round(0).Sub(c.epoch.Round(0))))
}

// read is now for clocks that show the times mono and wall since the epoch.
func (c *clock) read(mono, wall int64) int64 {
	for was := c.ahead.Load(); wall-mono-was >= int64(step) || was-(wall-mono) >= int64(step); was = c.ahead.Load() {
		if c.ahead.CompareAndSwap(was, wall-mono) {
			c.slept.Add(max(wall-mono-was, 0))
		}
	}
	return mono + c.slept.Load()
}

// leases is the clock of all leases of this process.
var leases = clock{epoch: time.Now()}
