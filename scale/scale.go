// Package scale changes how many handlers a subscription runs, by the backlog of its group.
//
// An [Autoscaler] looks at a group from time to time. A [Strategy] says from each [Sample] whether
// one more handler or one fewer is needed, and why. [Stabilized] keeps a strategy from acting on
// short peaks and from acting too often. The default is [Backlog], stabilized.
//
// Every process scales its own member of the group by the backlog of the whole group. With
// several processes each adds handlers until the backlog shrinks. To add processes, let the
// platform scale by the metric eventbus.group.lag. docs/scaling.md shows how, and when a
// limiter.Adaptive is the better choice. Its figure is the course of a backlog of 50,000 events.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Group is a member of a group whose number of handlers can change. [*eventbus.Subscription]
// is one, if it has a range of Concurrency.
type Group interface {
	Topic() string
	Group() string

	// Stats describes the group, all members together.
	Stats(ctx context.Context) (backend.Stats, error)

	// Handlers returns how many handlers may run now, and the bounds of this number.
	Handlers() (now, least, most int)

	// ScaleUp allows one more handler. It returns false at the upper bound.
	ScaleUp() bool

	// ScaleDown ends one idle handler, the newest. It returns false at the lower bound, or if
	// no handler is idle.
	ScaleDown() bool
}

// A Sample is a group at one moment.
type Sample struct {
	At                    time.Time
	Handlers, Least, Most int
	Lag                   int64         // events that wait for their first delivery or for another one; Unknown: not known
	Oldest                time.Duration // age of the oldest event that the group has not settled; 0: there is none, or it is not known
}

// Unknown is the value of Sample.Lag that nobody knows.
const Unknown = backend.Unknown

// A Change is the wish of a [Strategy].
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

// A Strategy decides from each sample of one group, in the order of their times. A strategy that
// remembers samples needs a new value for each group. why is a short text for the operator. An
// [Autoscaler] does not carry out a Down while the lag is unknown.
type Strategy interface {
	Decide(s Sample) (c Change, why string)
}

// A Backlog adds a handler if more events wait than the handlers can take soon, and removes one
// if few wait.
type Backlog struct {
	Up     float64       // add if the lag is greater than so many events for each handler; default 2
	Down   float64       // remove if the lag is less than so many events for each handler; default 0.5
	Oldest time.Duration // also add if the oldest event is older; default: no bound
}

// Decide implements [Strategy]. With an unknown lag, or with no more than the least number of
// handlers, it never wants Down.
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

// Stabilized returns a strategy for one group that wants a change only after next has wanted it
// for the time of hysteresis without a break, and at least a cooldown after its last change. A
// wish that was not carried out, such as Up at the bound, delays only the same wish.
func Stabilized(next Strategy, hysteresis, cooldown time.Duration) Strategy {
	return &stabilized{next: next, hysteresis: hysteresis, cooldown: cooldown}
}

type stabilized struct {
	next                 Strategy
	hysteresis, cooldown time.Duration

	wants    Change
	since    time.Time // when next began to want it
	changed  time.Time // zero: no change yet
	change   Change    // the last one
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

// A Decision is a change that an [Autoscaler] has made or could not make, and its reason.
type Decision struct {
	Topic, Group string
	Sample       Sample
	Change       Change
	Done         bool   // false: the group is at its bound, no handler is idle, or Down was wanted with an unknown lag
	Why          string // with the figures
	Err          error  // why the group could not be described; then Change is Stay
}

// An Autoscaler scales groups. The zero value is ready to use.
type Autoscaler struct {
	// Poll is the time between two looks at each group. Default 5 s.
	Poll time.Duration

	// Strategy returns the strategy for a group. Default: a zero Backlog, stabilized with a
	// hysteresis of 10 s and a cooldown of 30 s.
	Strategy func(Group) Strategy

	// Decided gets each decision for Up or Down, and each failed look. It must return soon.
	// Default: none.
	Decided func(Decision)
}

// Run scales groups until ctx ends. A look that fails changes nothing.
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

// look takes a sample of g, and carries out the decision of the strategy.
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

// sampleOf returns the sample of a group with these stats, or with unknown figures after an error.
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
