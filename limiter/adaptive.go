package limiter

import (
	"context"
	"math"
	"sync"
	"time"
)

// An Adaptive is a [Limiter] that adjusts its number of slots to the handlers, so that it protects
// a service that they call. The number grows while runs take no longer than they do with few slots,
// and shrinks when runs take longer or fail. For all slots to be used, SubscribeOptions.Concurrency
// must be at least the maximum. The methods are safe for concurrent use.
//
// An Adaptive measures runs, the calls of handlers, in rounds. A round has as many runs as there
// are slots, and at least ten. Runs that started before the last change of the limit do not count.
// At the end of a round the limiter computes
//
//	mean     = the total time of the runs / the number of runs
//	base     = the least mean since the last probe; a mean counts if at most a tenth failed
//	gradient = 2·base / mean, or the share of runs that succeeded if more than a tenth
//	           failed; at least ½ and at most 1
//	slots    = gradient·slots, if the gradient is below 1
//	           slots + √slots, otherwise, if at least half of them held messages at one time
//
// Every hundredth round is followed by a probe: the limiter keeps a quarter of the slots and
// measures base again, so that base follows a service that has become permanently slower. With so few
// slots no queue forms in front of the service, so the runs of a probe do not wait there.
type Adaptive struct {
	slots    *pool
	min, max float64

	mu     sync.Mutex
	limit  float64
	round  Released // sums of the runs of this round
	skip   int      // runs still to be ignored, because they started before the last change of limit
	most   int      // the most slots that held messages at the same time in this round
	rounds int
	state  AdaptiveState
}

var _ Limiter = (*Adaptive)(nil)

// An AdaptiveState describes an Adaptive after its last round.
type AdaptiveState struct {
	Limit    int           // the current number of slots
	Gradient float64       // see Adaptive; 1 means that runs are as fast as usual, 0 that no round has ended
	Mean     time.Duration // the mean time of the runs of the last round
	Base     time.Duration // the least Mean since the last probe, or 0 if unknown
}

const (
	shortestRound  = 10  // the least number of runs in a round
	usualFailures  = 0.1 // up to this share of failed runs, failures are ignored
	tolerance      = 2   // up to this Mean / Base, runs are as fast as usual
	roundsPerProbe = 100
)

// NewAdaptive returns a limiter with at least min and at most max slots. It starts with min.
// NewAdaptive panics unless 1 ≤ min ≤ max.
func NewAdaptive(min, max int) *Adaptive {
	if min < 1 || max < min {
		panic("limiter: NewAdaptive needs 1 ≤ min ≤ max")
	}
	return &Adaptive{
		slots: newPool(min, 0), min: float64(min), max: float64(max),
		limit: float64(min), state: AdaptiveState{Limit: min},
	}
}

// State returns the limit and the measurements of the last completed round; see
// [Adaptive].
func (a *Adaptive) State() AdaptiveState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Acquire implements [Limiter].
func (a *Adaptive) Acquire(ctx context.Context, max int) (Grant, error) {
	return a.slots.Acquire(ctx, max)
}

// Fill implements [Limiter].
func (a *Adaptive) Fill(g Grant, n int, bytes int64) {
	a.slots.Fill(g, n, bytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most = max(a.most, a.slots.filled())
}

// Release implements [Limiter].
func (a *Adaptive) Release(r Released) {
	a.slots.Release(r)
	if r.Runs == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.skip > 0 {
		a.skip -= r.Runs
		return
	}
	a.round.Runs += r.Runs
	a.round.Failed += r.Failed
	a.round.Took += r.Took
	if a.round.Runs >= max(a.state.Limit, shortestRound) {
		a.endRound()
	}
}

// endRound computes the number of slots at the end of a round and starts the next one.
func (a *Adaptive) endRound() {
	s, before := &a.state, a.state.Limit
	s.Gradient = 1
	s.Mean = a.round.Took / time.Duration(a.round.Runs)
	failed := float64(a.round.Failed) / float64(a.round.Runs)
	switch {
	case failed > usualFailures:
		s.Gradient = max(1-failed, 0.5)
	case s.Base == 0 || s.Mean <= s.Base:
		s.Base = s.Mean
	default:
		s.Gradient = min(max(tolerance*float64(s.Base)/float64(s.Mean), 0.5), 1)
	}
	a.rounds++
	switch {
	case a.rounds%roundsPerProbe == 0:
		a.limit, s.Base = a.limit/4, 0
	case s.Gradient < 1:
		a.limit *= s.Gradient
	case 2*a.most >= s.Limit:
		a.limit += math.Sqrt(a.limit)
	}
	a.limit = min(max(a.limit, a.min), a.max)
	a.round, a.most = Released{}, 0
	if s.Limit = int(a.limit); s.Limit != before {
		a.skip = a.slots.filled()
		a.slots.resize(s.Limit)
	}
}
