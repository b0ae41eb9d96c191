package scale_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/scale"
)

// A group is a group whose lag the test sets.
type group struct {
	mu        sync.Mutex
	now, most int
	busy      bool
	stats     backend.Stats
	err       error
	trace     []int // of now, after each change
	changed   []time.Duration
	began     time.Time
}

func newGroup(most int) *group { return &group{now: 1, most: most, began: time.Now()} }

func (g *group) Topic() string { return "orders" }
func (g *group) Group() string { return "billing" }

func (g *group) Stats(context.Context) (backend.Stats, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats, g.err
}

func (g *group) Handlers() (now, least, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now, 1, g.most
}

func (g *group) ScaleUp() bool   { return g.change(1) }
func (g *group) ScaleDown() bool { return g.change(-1) }

func (g *group) change(by int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := g.now + by; next < 1 || next > g.most || by < 0 && g.busy {
		return false
	}
	g.now += by
	g.trace = append(g.trace, g.now)
	g.changed = append(g.changed, time.Since(g.began))
	return true
}

func (g *group) set(change func(g *group)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

// steps returns a copy of the trace.
func (g *group) steps() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.trace)
}

// run scales g while script changes its lag. It returns the decisions.
func run(t *testing.T, g *group, a scale.Autoscaler, script func()) (all []scale.Decision) {
	t.Helper()
	a.Decided = func(d scale.Decision) { all = append(all, d) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx, g) }()
	script()
	cancel()
	<-ended
	return all
}

// A burst scales up one by one, each step after the cooldown, to the bound, and down again.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(4)
		all := run(t, g, scale.Autoscaler{}, func() {
			g.set(func(g *group) { g.stats.Lag = 1000 })
			time.Sleep(3 * time.Minute)
			g.set(func(g *group) { g.stats.Lag = 0 })
			time.Sleep(3 * time.Minute)
		})
		require.Equal(t, []int{2, 3, 4, 3, 2, 1}, g.trace)
		require.Equal(t, 15*time.Second, g.changed[0], "5 s until the first look, and 10 s of hysteresis")
		for i := 1; i < 3; i++ {
			require.Equal(t, 30*time.Second, g.changed[i]-g.changed[i-1], "the cooldown")
		}
		require.False(t, all[3].Done, "the group is at its bound")
		require.Equal(t, scale.Up, all[3].Change)
		require.Equal(t, "the lag is 1000, more than 2 for 1 handlers", all[0].Why)
		require.Equal(t, "orders", all[0].Topic)
	})
}

// A lag that goes up and down faster than the hysteresis changes nothing.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(4)
		all := run(t, g, scale.Autoscaler{}, func() {
			for range 40 {
				g.set(func(g *group) { g.stats.Lag = 1000 })
				time.Sleep(7 * time.Second)
				g.set(func(g *group) { g.stats.Lag = 1 })
				time.Sleep(7 * time.Second)
			}
		})
		require.Empty(t, g.trace)
		require.Empty(t, all)
	})
}

// A sawtooth that is slower than hysteresis and cooldown is followed, without steps between.
func TestSawtooth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(2)
		run(t, g, scale.Autoscaler{}, func() {
			for range 3 {
				g.set(func(g *group) { g.stats.Lag = 100 })
				time.Sleep(time.Minute)
				g.set(func(g *group) { g.stats.Lag = 0 })
				time.Sleep(time.Minute)
			}
		})
		require.Equal(t, []int{2, 1, 2, 1, 2, 1}, g.trace)
	})
}

// A flat lag between the bounds changes nothing.
func TestFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(4)
		require.Empty(t, run(t, g, scale.Autoscaler{}, func() {
			g.set(func(g *group) { g.stats.Lag = 1 })
			time.Sleep(10 * time.Minute)
		}))
	})
}

// While the lag is unknown or the broker is away, nothing is scaled down. An old event scales up.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(3)
		g.now = 2
		all := run(t, g, scale.Autoscaler{Strategy: func(scale.Group) scale.Strategy {
			return scale.Stabilized(scale.Backlog{Oldest: time.Minute}, 10*time.Second, 30*time.Second)
		}}, func() {
			g.set(func(g *group) { g.stats.Lag = scale.Unknown })
			time.Sleep(2 * time.Minute)
			require.Empty(t, g.trace)
			g.set(func(g *group) { g.err = backend.ErrUnavailable })
			time.Sleep(2 * time.Minute)
			require.Empty(t, g.trace)
			g.set(func(g *group) { g.err = nil; g.stats.Oldest = time.Now().Add(-2 * time.Minute) })
			time.Sleep(20 * time.Second)
		})
		require.Equal(t, []int{3}, g.trace)
		require.ErrorIs(t, all[0].Err, backend.ErrUnavailable)
		require.Equal(t, scale.Stay, all[0].Change)
		require.True(t, strings.HasPrefix(all[len(all)-1].Why, "the oldest event waits for 2m"), all[len(all)-1].Why)
	})
}

// A long broker outage changes nothing, and each failed sample is reported. When the broker is
// back, the hysteresis starts over.
func TestBrokerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(3)
		all := run(t, g, scale.Autoscaler{}, func() {
			g.set(func(g *group) { g.stats.Lag = 1000 })
			time.Sleep(12 * time.Second) // it has wanted Up for 5 s
			g.set(func(g *group) { g.err = backend.ErrUnavailable })
			time.Sleep(10 * time.Minute)
			require.Empty(t, g.steps())
			g.set(func(g *group) { g.err = nil })
			time.Sleep(12 * time.Second)
			require.Empty(t, g.steps(), "for 10 s so far")
			time.Sleep(5 * time.Second)
			require.Equal(t, []int{2}, g.steps())
			g.set(func(g *group) { g.err, g.stats.Lag = backend.ErrUnavailable, 0 })
			time.Sleep(10 * time.Minute)
		})
		require.Equal(t, []int{2}, g.steps())
		failed := 0
		for _, d := range all {
			if d.Err != nil {
				require.Equal(t, scale.Stay, d.Change)
				require.EqualValues(t, scale.Unknown, d.Sample.Lag)
				failed++
			}
		}
		require.Equal(t, 240, failed, "two times ten minutes, each 5 s")
	})
}

// A strategy that takes an unknown lag for a small one removes no handler, and the decision says so.
func TestUnknownLagNeverScalesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(3)
		g.now, g.stats.Lag = 3, scale.Unknown
		all := run(t, g, scale.Autoscaler{Strategy: func(scale.Group) scale.Strategy { return careless{} }}, func() {
			time.Sleep(time.Minute)
		})
		require.Empty(t, g.trace)
		require.NotEmpty(t, all)
		for _, d := range all {
			require.Equal(t, scale.Down, d.Change)
			require.False(t, d.Done)
		}
	})
}

// careless wants Down if the lag is less than 10.
type careless struct{}

func (careless) Decide(s scale.Sample) (scale.Change, string) {
	if s.Lag < 10 {
		return scale.Down, "the lag is small"
	}
	return scale.Stay, ""
}

// A group that was idle at its least number of handlers tells nothing, and follows a burst after
// the hysteresis alone. After a wish that the bound refused, the opposite one waits no longer either.
func TestRefusedWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(2)
		all := run(t, g, scale.Autoscaler{}, func() {
			time.Sleep(601 * time.Second)
			g.set(func(g *group) { g.stats.Lag = 1000 })
			time.Sleep(47 * time.Second) // one more handler after 615 s, and after 645 s the bound refuses another one
			g.set(func(g *group) { g.stats.Lag = 0 })
			time.Sleep(time.Minute)
		})
		require.Equal(t, []int{2, 1}, g.trace)
		require.Len(t, all, 3)
		require.False(t, all[1].Done)
		require.Equal(t, 10*time.Minute+15*time.Second, g.changed[0], "the lag is seen after 605 s, and 10 s of hysteresis follow")
		require.Equal(t, 11*time.Minute, g.changed[1], "and after 650 s")
	})
}

// A backend that cannot describe groups is no failed look.
func TestUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(3)
		g.err = errors.ErrUnsupported
		require.Empty(t, run(t, g, scale.Autoscaler{}, func() { time.Sleep(time.Minute) }))
	})
}

// A group whose handlers are all busy is not scaled down, and the decision says so.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(3)
		g.now, g.busy = 2, true
		all := run(t, g, scale.Autoscaler{}, func() { time.Sleep(time.Minute) })
		require.Empty(t, g.trace)
		require.Equal(t, scale.Down, all[0].Change)
		require.False(t, all[0].Done)
	})
}

// If a backend does not answer within Poll, the sample has failed, which is reported.
func TestHangingStatsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &hanging{newGroup(4)}
		var told []scale.Decision
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			scale.Autoscaler{Poll: time.Second, Decided: func(d scale.Decision) { told = append(told, d) }}.Run(ctx, g)
		}()
		time.Sleep(3500 * time.Millisecond)
		cancel()
		<-ended
		require.NotEmpty(t, told)
		for _, d := range told {
			require.ErrorIs(t, d.Err, context.DeadlineExceeded)
			require.Equal(t, scale.Stay, d.Change)
			require.Equal(t, int64(scale.Unknown), int64(d.Sample.Lag))
		}
	})
}

// The Stats of a hanging group end with their context.
type hanging struct{ *group }

func (*hanging) Stats(ctx context.Context) (backend.Stats, error) {
	<-ctx.Done()
	return backend.Stats{}, ctx.Err()
}
