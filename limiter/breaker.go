package limiter

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// BreakerOptions are the settings of a Breaker. A zero field means its default.
type BreakerOptions struct {
	// Failures is the share of failed runs that opens the breaker, above 0 and at most 1. Default
	// 0.5.
	Failures float64

	// Window is the time over which runs are counted. Default 10 s.
	Window time.Duration

	// Runs is the least number of runs (calls of handlers) in the window that can open the breaker.
	// Default 10.
	Runs int

	// Pause is how long an open breaker grants nothing. Default 30 s.
	Pause time.Duration

	// Trials is the number of slots that the breaker grants after a pause. If that many runs
	// succeed, it closes. Default 1. If subscriptions share a breaker, Trials must be at least
	// their number, because a subscription keeps a slot while its topic is empty.
	Trials int
}

// Effective returns o with defaults in place of zero fields, as NewBreaker uses it.
func (o BreakerOptions) Effective() BreakerOptions {
	if o.Failures == 0 {
		o.Failures = 0.5
	}
	if o.Window == 0 {
		o.Window = 10 * time.Second
	}
	if o.Runs == 0 {
		o.Runs = 10
	}
	if o.Pause == 0 {
		o.Pause = 30 * time.Second
	}
	if o.Trials == 0 {
		o.Trials = 1
	}
	return o
}

// A BreakerState says how many slots a Breaker grants.
type BreakerState string

// The states of a Breaker.
const (
	Closed   BreakerState = "closed"    // it grants all slots
	Open     BreakerState = "open"      // it grants no slots
	HalfOpen BreakerState = "half-open" // it grants a few slots, the trials
)

// A Breaker is a circuit breaker: a limiter that opens when too large a share of runs, the calls of
// handlers, has failed. While it is open, its subscriptions start no read, and have the state
// observer.Limited with the reason as their error. They still handle events that they hold, and
// those of a read in progress. No event is lost, because all others wait in the backend.
//
// After BreakerOptions.Pause a subscription reads a few events, the trials. If they succeed, the
// breaker closes. If any run fails before that, it opens again.
//
// Every run that returns an error counts as failed, even if the error comes from eventbus.Snooze or
// eventbus.Drop. The methods are safe for concurrent use.
type Breaker struct {
	options BreakerOptions

	mu      sync.Mutex
	state   BreakerState
	reason  string    // in state Open: why the breaker is open
	until   time.Time // in state Open: the end of the pause
	held    int       // granted slots that were not released
	old     int       // in state HalfOpen: the slots of held that were granted before the pause
	good    int       // in state HalfOpen: the runs that succeeded
	counts  [windowParts]windowPart
	changed chan struct{} // closed and replaced when waiting calls of Acquire should try again
}

var _ Limiter = (*Breaker)(nil)

// windowParts is the number of parts of the window, which moves one part at a time.
const windowParts = 10

// A windowPart counts the runs of one part of the window.
type windowPart struct {
	turn         int64 // the number of this part, counted from the Unix epoch
	runs, failed int
}

// NewBreaker returns a closed breaker. It panics if a field of o is negative, or Failures is more
// than 1.
func NewBreaker(o BreakerOptions) *Breaker {
	if o.Failures < 0 || o.Failures > 1 || o.Window < 0 || o.Runs < 0 || o.Pause < 0 || o.Trials < 0 {
		panic("limiter: NewBreaker needs options that are not negative, and Failures of at most 1")
	}
	return &Breaker{options: o.Effective(), state: Closed, changed: make(chan struct{})}
}

// State returns the state of the breaker. After the pause it stays Open until a subscription asks
// for slots.
func (b *Breaker) State() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// Acquire implements [Limiter]. While the breaker is open it fails with a *WaitError.
func (b *Breaker) Acquire(ctx context.Context, max int) (Grant, error) {
	for {
		n, changed, err := b.take(max)
		if n > 0 || err != nil {
			return Grant{Messages: n}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Grant{}, context.Cause(ctx)
		}
	}
}

// take grants at most max slots. If it grants none, it returns an error, or a channel that is
// closed when the caller should try again.
func (b *Breaker) take(max int) (int, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open {
		if time.Now().Before(b.until) {
			return 0, nil, &WaitError{Until: b.until, Reason: b.reason}
		}
		b.state, b.old, b.good = HalfOpen, b.held, 0
	}
	if b.state == HalfOpen {
		max = min(max, b.options.Trials-(b.held-b.old))
	}
	b.held += max
	return max, b.changed, nil
}

// Fill implements [Limiter]. When a read from before the pause ends without messages, further
// trials become possible.
func (b *Breaker) Fill(g Grant, n int, _ int64) {
	unused := g.Messages - n
	if unused == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= unused
	if b.state == HalfOpen {
		b.old = min(b.old, b.held)
		b.wake()
	}
}

// Release implements [Limiter].
func (b *Breaker) Release(r Released) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.held -= r.Settled
	switch b.state {
	case Closed:
		if runs, failed := b.count(now, r); runs >= b.options.Runs && float64(failed) >= b.options.Failures*float64(runs) {
			b.open(now, fmt.Sprintf("the breaker is open for %v: %d of %d runs failed within %v", b.options.Pause, failed, runs, b.options.Window))
		}
	case HalfOpen:
		// The breaker cannot tell whether a released slot was a trial. It assumes that
		// settled slots are from before the pause, and unused ones are not; see Fill.
		b.old = min(max(b.old-r.Settled, 0), b.held)
		b.good += r.Runs - r.Failed
		switch {
		case r.Failed > 0:
			b.open(now, fmt.Sprintf("the breaker is open for %v more: a run failed after the pause", b.options.Pause))
		case b.good >= b.options.Trials:
			b.state = Closed
		}
		b.wake()
	}
}

// count adds the runs of r to the window, and returns how many runs, and how many failed ones, are
// in it.
func (b *Breaker) count(now time.Time, r Released) (runs, failed int) {
	turn := now.UnixNano() / max(int64(b.options.Window)/windowParts, 1)
	part := &b.counts[turn%windowParts]
	if part.turn != turn {
		*part = windowPart{turn: turn}
	}
	part.runs += r.Runs
	part.failed += r.Failed
	for _, p := range b.counts {
		if turn-p.turn < windowParts {
			runs, failed = runs+p.runs, failed+p.failed
		}
	}
	return runs, failed
}

func (b *Breaker) open(now time.Time, reason string) {
	b.state, b.reason, b.until = Open, reason, now.Add(b.options.Pause)
	b.counts = [windowParts]windowPart{}
}

// wake lets waiting calls of Acquire try again.
func (b *Breaker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}
