// Package scale adjusts how many handlers a subscription runs to the backlog of its group.
//
// An [Autoscaler] samples a group from time to time. A [Strategy] decides from each [Sample]
// whether to run one handler more or fewer, and why. [Stabilized] keeps a strategy from reacting to
// short peaks and from acting too often. The default is [Backlog], stabilized.
//
// Every process scales its own member by the backlog of the whole group; if there are several, each
// adds handlers until the backlog shrinks. To add processes, let your platform scale by the metric
// eventbus.group.lag. See docs/scaling.md for how, for when limiter.Adaptive is the better choice,
// and for a chart of a backlog of 50,000 events.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Group is a member of a group whose number of handlers can change. A [*eventbus.Subscription]
// with a range of Concurrency is one.
type Group interface {
	Topic() string
	Group() string

	// Stats describes the group, all members together.
	Stats(ctx context.Context) (backend.Stats, error)

	// Handlers returns how many handlers may currently run, and the limits of this number.
	Handlers() (now, least, most int)

	// ScaleUp allows one more handler. It returns false if there are already as many as allowed.
	ScaleUp() bool

	// ScaleDown ends one idle handler, the newest. It returns false at the lower limit, or if no
	// handler is idle.
	ScaleDown() bool
}

// A Sample describes a group at one point in time.
type Sample struct {
	At                    time.Time
	Handlers, Least, Most int
	Lag                   int64         // events waiting for their first or another delivery; may be Unknown
	Oldest                time.Duration // age of the oldest event that the group has not settled; 0 if there is none, or if it is unknown
}

// Unknown is the value of Sample.Lag if it is not known.
const Unknown = backend.Unknown

// A Change is what a [Strategy] asks for.
type Change int

// The values of Change.
const (
	Down Change = iota - 1 // one handler fewer
	Stay
	Up // one handler more
)

// String returns "down", "stay" or "up".
func (c Change) String() string {
	switch {
	case c < Stay:
		return "down"
	case c > Stay:
		return "up"
	}
	return "stay"
}

// A Strategy decides from the samples of one group, in chronological order. If it remembers
// samples, each group needs a value of its own. why is a short text for the operator. An
// [Autoscaler] ignores Down while the lag is unknown.
type Strategy interface {
	Decide(s Sample) (c Change, why string)
}

// A Backlog adds a handler if more events are waiting than the handlers can take soon, and removes
// one if few are waiting.
type Backlog struct {
	Up     float64       // add a handler if the lag exceeds this many events per handler; default 2
	Down   float64       // remove one if the lag is below this many events per handler; default 0.5
	Oldest time.Duration // add one, too, if the oldest event is older than this; default: no limit
}

// Decide implements [Strategy]. It never asks for Down if the lag is unknown, or at the least
// number of handlers.
func (b Backlog) Decide(s Sample) (Change, string) {
	up, down := b.Up, b.Down
	if up == 0 {
		up = 2
	}
	if down == 0 {
		down = 0.5
	}
	most, least := float64(s.Handlers)*up, float64(s.Handlers)*down
	switch {
	case b.Oldest > 0 && s.Oldest > b.Oldest:
		return Up, fmt.Sprintf("the oldest event waits for %v, longer than %v", s.Oldest.Round(time.Millisecond), b.Oldest)
	case s.Lag == Unknown:
		return Stay, "the lag is unknown"
	case float64(s.Lag) > most:
		return Up, fmt.Sprintf("the lag is %d, more than %g for %d handlers", s.Lag, most, s.Handlers)
	case float64(s.Lag) < least && s.Handlers > s.Least:
		return Down, fmt.Sprintf("the lag is %d, less than %g for %d handlers", s.Lag, least, s.Handlers)
	}
	return Stay, fmt.Sprintf("the lag is %d for %d handlers", s.Lag, s.Handlers)
}

// Stabilized returns a strategy for one group that asks for a change only once next has asked for
// it continuously for the time hysteresis, and at least cooldown after its last change. A change
// that was not carried out, such as Up at the limit, only delays the same change.
func Stabilized(next Strategy, hysteresis, cooldown time.Duration) Strategy {
	return &stabilized{next: next, hysteresis: hysteresis, cooldown: cooldown}
}

type stabilized struct {
	next                 Strategy
	hysteresis, cooldown time.Duration

	wants    Change
	since    time.Time // since when next has asked for it
	changed  time.Time // of the last change, or zero
	change   Change    // the last change
	handlers int       // before the last change
}

func (s *stabilized) Decide(sample Sample) (Change, string) {
	c, why := s.next.Decide(sample)
	if c != s.wants || s.since.IsZero() {
		s.wants, s.since = c, sample.At
	}
	switch {
	case c == Stay:
		return Stay, why
	case sample.At.Sub(s.since) < s.hysteresis:
		return Stay, fmt.Sprintf("%s, for %v so far", why, sample.At.Sub(s.since))
	case s.cools(c, sample):
		return Stay, fmt.Sprintf("%s, and the last change was %v ago", why, sample.At.Sub(s.changed))
	}
	s.changed, s.change, s.handlers = sample.At, c, sample.Handlers
	return c, why
}

// cools reports whether it is too soon after the last change for the change c.
func (s *stabilized) cools(c Change, sample Sample) bool {
	if s.changed.IsZero() || sample.At.Sub(s.changed) >= s.cooldown {
		return false
	}
	return c == s.change || sample.Handlers != s.handlers
}

// A Decision is a change that an [Autoscaler] made or could not make, and its reason.
type Decision struct {
	Topic, Group string
	Sample       Sample
	Change       Change
	Done         bool   // false if the group is at its limit, if no handler is idle, or for Down with an unknown lag
	Why          string // the reason, with the numbers
	Err          error  // why the group could not be sampled; then Change is Stay
}

// An Autoscaler scales groups. The zero value is ready to use.
type Autoscaler struct {
	// Poll is the time between two samples of each group. Default 5 s.
	Poll time.Duration

	// Strategy returns the strategy for a group. Default: a zero Backlog, stabilized with a
	// hysteresis of 10 s and a cooldown of 30 s.
	Strategy func(Group) Strategy

	// Decided is called with each decision for Up or Down, and with each failed sample. It must
	// return soon. Default: none.
	Decided func(Decision)
}

// Run scales groups until ctx ends. A failed sample changes nothing.
func (a Autoscaler) Run(ctx context.Context, groups ...Group) {
	if a.Poll <= 0 {
		a.Poll = 5 * time.Second
	}
	if a.Strategy == nil {
		a.Strategy = func(Group) Strategy { return Stabilized(Backlog{}, 10*time.Second, 30*time.Second) }
	}
	strategies := make([]Strategy, len(groups))
	for i, g := range groups {
		strategies[i] = a.Strategy(g)
	}
	for tick := time.NewTicker(a.Poll); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		for i, g := range groups {
			a.look(ctx, g, strategies[i])
		}
	}
}

// look samples g and carries out the decision of the strategy.
func (a Autoscaler) look(ctx context.Context, g Group, s Strategy) {
	soon, cancel := context.WithTimeout(ctx, a.Poll)
	defer cancel()
	d := Decision{Topic: g.Topic(), Group: g.Group()}
	stats, err := g.Stats(soon)
	d.Sample = sampleOf(g, stats, err)
	d.Change, d.Why = s.Decide(d.Sample)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		d.Err = err
	}
	switch d.Change {
	case Up:
		d.Done = g.ScaleUp()
	case Down:
		d.Done = d.Sample.Lag != Unknown && g.ScaleDown()
	}
	if a.Decided != nil && ctx.Err() == nil && (d.Change != Stay || d.Err != nil) {
		a.Decided(d)
	}
}

// sampleOf returns the sample of a group with these stats, or one without them after an error.
func sampleOf(g Group, stats backend.Stats, err error) Sample {
	s := Sample{At: time.Now(), Lag: Unknown}
	s.Handlers, s.Least, s.Most = g.Handlers()
	if err != nil {
		return s
	}
	if stats.Lag >= 0 && stats.Delayed >= 0 {
		s.Lag = stats.Lag + stats.Delayed
	} else if stats.Lag >= 0 {
		s.Lag = stats.Lag
	}
	if !stats.Oldest.IsZero() {
		s.Oldest = max(s.At.Sub(stats.Oldest), 0) // the broker's clock may be ahead
	}
	return s
}
