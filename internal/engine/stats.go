package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/observer"
)

// counters holds the totals that [Counts] reports.
type counters struct {
	received, acknowledged, failures, panics, timeouts, snoozes, retried, deadLettered, discarded, leasesLost, abandoned atomic.Int64
}

// failed counts a run that failed with err. A panic after the timeout counts as a timeout.
func (c *counters) failed(err error) {
	c.failures.Add(1)
	if isTimeout(err) {
		c.timeouts.Add(1)
	} else if _, panicked := errors.AsType[*observer.PanicError](err); panicked {
		c.panics.Add(1)
	}
}

// Counts holds the totals of a subscription since its start, and the number of its Holds now.
type Counts struct {
	Received, Acknowledged, Failures, Panics, Timeouts, Snoozes, Retried, DeadLettered, Discarded, LeasesLost, Abandoned int64

	Held, HeldBytes, Running int64 // current Holds, their bytes, and running handlers
}

// Counts returns the totals so far and the current number of Holds.
func (s *Subscription) Counts() Counts {
	c := &s.counts
	n := Counts{
		Received: c.received.Load(), Acknowledged: c.acknowledged.Load(),
		Panics: c.panics.Load(), Timeouts: c.timeouts.Load(), Failures: c.failures.Load(), // last, because it includes the others
		Snoozes: c.snoozes.Load(),
		Retried: c.retried.Load(), DeadLettered: c.deadLettered.Load(), Discarded: c.discarded.Load(),
		LeasesLost: c.leasesLost.Load(), Abandoned: c.abandoned.Load(),
	}
	s.ledger.mu.Lock() // not lock, because there are no effects
	defer s.ledger.mu.Unlock()
	now := s.ledger.Stats()
	n.Held, n.HeldBytes, n.Running = int64(now.Held), now.Bytes, int64(now.Running)
	return n
}

// Stats returns the result of [backend.StatsOf] for the group. With several topics it is the sum
// over those that exist, and for a topic with partitions it is the sum over all of them. A panic of
// the driver becomes an error.
func (s *Subscription) Stats(ctx context.Context) (sum backend.Stats, err error) {
	defer recovered(&err)
	topics := s.Topics()
	switch {
	case s.Config.Partitions > 0:
		topics = s.Config.Topics
	case s.roundRobin == nil:
		return backend.StatsOf(ctx, s.engine.backend, s.Topic, s.Group)
	}
	if s.owns() {
		tokens, err := backend.StatsOf(ctx, s.engine.backend, partition.OwnersTopic(s.Topic), s.Group)
		if err != nil {
			return backend.Stats{}, err
		}
		sum.Members = tokens.Members
	}
	all, errs := s.statsOf(ctx, topics)
	for i, topic := range topics {
		one, err := all[i], errs[i]
		switch {
		case errors.Is(err, backend.ErrGone):
			continue
		case err != nil:
			return backend.Stats{}, fmt.Errorf("topic %s: %w", topic, err)
		}
		sum.Depth, sum.Lag = plus(sum.Depth, one.Depth), plus(sum.Lag, one.Lag)
		sum.Unacked = plus(sum.Unacked, one.Unacked)
		sum.InFlight, sum.Delayed = plus(sum.InFlight, one.InFlight), plus(sum.Delayed, one.Delayed)
		sum.Members = max(sum.Members, one.Members)
		if !one.Oldest.IsZero() && (sum.Oldest.IsZero() || one.Oldest.Before(sum.Oldest)) {
			sum.Oldest = one.Oldest
		}
	}
	return sum, nil
}

// statsOf queries the Stats of the group in each of topics.
func (s *Subscription) statsOf(ctx context.Context, topics []string) (all []backend.Stats, errs []error) {
	all, errs = make([]backend.Stats, len(topics)), make([]error, len(topics))
	var calls sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentAttach)
	for i, topic := range topics {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			errs[i] = callDriver("Stats", func() (err error) { all[i], err = backend.StatsOf(ctx, s.engine.backend, topic, s.Group); return err })
		})
	}
	calls.Wait()
	return all, errs
}

// plus adds two numbers of a [backend.Stats], each of which may be Unknown.
func plus(x, y int64) int64 {
	if x == backend.Unknown || y == backend.Unknown {
		return backend.Unknown
	}
	return x + y
}
