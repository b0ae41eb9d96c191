package partition

import (
	"sync/atomic"
	"time"
)

// A Claim is the ownership of a partition. Its methods are safe for concurrent use.
//
// Its times are compared by the monotonic clock and by the wall clock, and a time has passed if
// it has on either. The monotonic clock may stand still while a machine is suspended; the
// wall clock may be set back.
type Claim struct {
	Partition int
	Epoch     int // grows with each change of the owner

	lease time.Duration
	base  atomic.Pointer[time.Time] // the lease of the token does not end before base + lease
	lost  atomic.Bool
	ends  atomic.Bool // see Ends

	token token
	since time.Time
	gives bool // it is being given back; Coordinator.mu guards it
}

// Leases of a partitioned subscription.
const (
	// LeastLease is the shortest lease of a token.
	LeastLease = 3 * time.Second

	// late is how long after its context has ended a Receive may still get messages.
	late = time.Second
)

// EventLease returns the lease of the events of a partition whose token has the lease l.
func EventLease(l time.Duration) time.Duration { return l / 2 }

// drift is how much of a lease clocks may differ in.
func drift(l time.Duration) time.Duration { return l / 20 }

// window returns how long after the last extension of a token with the lease l its owner may
// still get leases of events.
func window(l time.Duration) time.Duration { return l - EventLease(l) - late - drift(l) }

// NewClaim returns a Claim whose token was asked for at the time base.
func NewClaim(p, epoch int, lease time.Duration, base time.Time) *Claim {
	c := &Claim{Partition: p, Epoch: epoch, lease: lease, since: base}
	c.base.Store(&base)
	return c
}

// extended records that the lease of the token was extended, by a call that began at base.
func (c *Claim) extended(base time.Time) { c.base.Store(&base) }

// passed reports whether d has passed since the last extension.
func (c *Claim) passed(d time.Duration, now time.Time) bool { return passed(*c.base.Load(), d, now) }

// passed reports whether d has passed from base to now by one of the clocks.
func passed(base time.Time, d time.Duration, now time.Time) bool {
	return now.Sub(base) >= d || now.Round(0).Sub(base.Round(0)) >= d
}

// Ends reports whether it is the first call. The Owner calls it to tell of each end once.
func (c *Claim) Ends() bool { return c.ends.CompareAndSwap(false, true) }

// Until returns until when the owner may get and extend leases of events, unless the token is
// extended.
func (c *Claim) Until() time.Time { return c.base.Load().Add(window(c.lease)) }

// Leases reports whether the owner may get and extend leases of events now.
func (c *Claim) Leases() bool {
	return !c.lost.Load() && !c.passed(window(c.lease), time.Now())
}

// Settles reports whether the owner may acknowledge events and give them back now: for a while
// after Leases has become false, no other member has the partition.
func (c *Claim) Settles() bool { return !c.passed(c.lease-drift(c.lease), time.Now()) }
