package engine

import (
	"context"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// counters are the totals that [Counts] reports.
type counters struct {
	received, acknowledged, failures, retried, deadLettered, discarded, leasesLost, abandoned atomic.Int64
}

// Counts has the totals of a subscription since its start, and the number of its Holds now.
type Counts struct {
	Received, Acknowledged, Failures, Retried, DeadLettered, Discarded, LeasesLost, Abandoned int64

	Held, HeldBytes, Running int64 // present Holds, their bytes, and running handlers
}

// Counts returns the totals so far and the present number of Holds.
func (s *Subscription) Counts() Counts {
	c := &s.counts
	n := Counts{
		Received: c.received.Load(), Acknowledged: c.acknowledged.Load(), Failures: c.failures.Load(),
		Retried: c.retried.Load(), DeadLettered: c.deadLettered.Load(), Discarded: c.discarded.Load(),
		LeasesLost: c.leasesLost.Load(), Abandoned: c.abandoned.Load(),
	}
	s.book.mu.Lock() // without effects
	defer s.book.mu.Unlock()
	now := s.book.Stats()
	n.Held, n.HeldBytes, n.Running = int64(now.Held), now.Bytes, int64(now.Running)
	return n
}

// Stats returns the result of [backend.StatsOf] for the group. A panic of the driver
// becomes an error.
func (s *Subscription) Stats(ctx context.Context) (stats backend.Stats, err error) {
	defer recovered(&err)
	return backend.StatsOf(ctx, s.engine.backend, s.Topic, s.Group)
}
