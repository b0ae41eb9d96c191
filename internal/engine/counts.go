package engine

import "sync/atomic"

// Counts are the totals of a subscription since its start.
type Counts struct {
	received, acknowledged, failures, retried, deadLettered, discarded, leasesLost, abandoned atomic.Int64
}

// A Tally is a copy of Counts.
type Tally struct {
	Received, Acknowledged, Failures, Retried, DeadLettered, Discarded, LeasesLost, Abandoned int64
}

func (c *Counts) abandon(n int) { c.abandoned.Add(int64(n)) }

// Tally returns the counts of now.
func (s *Subscription) Tally() Tally {
	c := &s.counts
	return Tally{
		Received: c.received.Load(), Acknowledged: c.acknowledged.Load(), Failures: c.failures.Load(),
		Retried: c.retried.Load(), DeadLettered: c.deadLettered.Load(), Discarded: c.discarded.Load(),
		LeasesLost: c.leasesLost.Load(), Abandoned: c.abandoned.Load(),
	}
}
