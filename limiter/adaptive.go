package limiter

import (
	"context"
	"math"
	"sync"
	"time"
)

// An Adaptive is a limiter whose number of places adapts to the handlers. It grows while
// runs take no longer than with few places, and shrinks when they take longer, or fail. To
// use all places, SubscribeOptions.Concurrency must be at least their maximum. Its methods
// are safe for concurrent use.
//
// It measures runs, the calls of handlers, in rounds. A round has as many runs as there are
// places, and ten at least. Runs that began before the last change of places do not count.
// At the end of a round,
//
//	mean     = the time of its runs / runs
//	base     = the least mean since the last probe
//	gradient = 2·base / mean, or the share of runs that succeeded if more than a tenth
//	           failed; at least ½ and at most 1
//	places   = gradient·places, if the gradient is below 1
//	           places + √places, if half of them held messages at once
//
// Every hundredth round is a probe: it leaves a quarter of the places and measures base
// anew. So base follows a service that has become slower for good. With so few places, no
// queue in front of the service lengthens the runs that base is measured by.
type Adaptive struct {
	places   *pool
	min, max float64

	mu     sync.Mutex
	limit  float64
	round  Released // the runs of this round
	skip   int      // runs that began before the last change
	most   int      // places that held messages at once in this round
	rounds int
	state  AdaptiveState
}

var _ Limiter = (*Adaptive)(nil)

// An AdaptiveState has the figures of an Adaptive at the end of its last round.
type AdaptiveState struct {
	Limit    int           // places now
	Gradient float64       // 1: runs are as fast as usual; 0 before the first round
	Mean     time.Duration // mean time of a run
	Base     time.Duration // the least Mean since the last probe; 0: not known
}

const (
	shortestRound  = 10  // runs
	usualFailures  = 0.1 // the share of failed runs up to which failures are ignored
	tolerance      = 2   // Mean / Base up to which runs are as fast as usual
	roundsPerProbe = 100
)

// NewAdaptive returns a limiter of min to max places, which begins with min. It panics
// unless 1 ≤ min ≤ max.
func NewAdaptive(min, max int) *Adaptive {
	if min < 1 || max < min {
		panic("limiter: NewAdaptive needs 1 ≤ min ≤ max")
	}
	return &Adaptive{
		places: newPool(min, 0), min: float64(min), max: float64(max),
		limit: float64(min), state: AdaptiveState{Limit: min},
	}
}

// State returns the figures of the last round.
func (a *Adaptive) State() AdaptiveState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Acquire implements [Limiter].
func (a *Adaptive) Acquire(ctx context.Context, max int) (int, error) {
	return a.places.Acquire(ctx, max)
}

// Fill implements [Limiter].
func (a *Adaptive) Fill(n int, bytes int64) {
	a.places.Fill(n, bytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most = max(a.most, a.places.filled())
}

// Release implements [Limiter].
func (a *Adaptive) Release(r Released) {
	a.places.Release(r)
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

// endRound computes the number of places after a round.
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
		a.skip = a.places.filled()
		a.places.resize(s.Limit)
	}
}
