package limiter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

// A service works on a number of calls at once; with more of them each takes longer.
type service struct {
	atOnce int
	takes  time.Duration
	fails  bool
	now    int // calls under way, of one goroutine at a time
}

// feed lets a subscription read, with as many handlers as it has places, for a while.
func feed(t *testing.T, l limiter.Limiter, s *service, d time.Duration) {
	type done struct{ took time.Duration }
	ends := make(chan done, 10_000)
	release := func(e done) {
		s.now--
		r := limiter.Released{Settled: 1, Bytes: 1, Runs: 1, Took: e.took}
		if s.fails {
			r.Failed = 1
		}
		l.Release(r)
	}
	for start := time.Now(); time.Since(start) < d; {
		for {
			g, err := l.Acquire(none(), 1)
			if g.Messages == 0 {
				require.Error(t, err)
				break
			}
			l.Fill(g, 1, 1)
			s.now++
			took := max(s.takes, s.takes*time.Duration(s.now)/time.Duration(s.atOnce))
			time.AfterFunc(took, func() { ends <- done{took} })
		}
		release(<-ends)
	}
	for s.now > 0 {
		release(<-ends)
	}
}

// The number of places adapts to the capacity of a service: all of it is used, and the
// queue in front of it stays short. It follows when the capacity changes.
func TestAdaptiveFindsTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewAdaptive(1, 1000)
		require.Equal(t, limiter.AdaptiveState{Limit: 1}, l.State())
		s := &service{atOnce: 20, takes: 100 * time.Millisecond}
		for _, atOnce := range []int{20, 5, 50} {
			s.atOnce = atOnce
			feed(t, l, s, 30*time.Second)
			for range 10 {
				feed(t, l, s, time.Second)
				got := l.State()
				require.LessOrEqual(t, got.Limit, 3*atOnce, "%+v", got)
				require.GreaterOrEqual(t, got.Limit, atOnce/4, "%+v", got)
			}
		}
	})
}

// reaches feeds l until it has so many places.
func reaches(t *testing.T, l *limiter.Adaptive, s *service, places int) {
	t.Helper()
	for range 600 {
		if l.State().Limit == places {
			return
		}
		feed(t, l, s, 10*s.takes)
	}
	require.Fail(t, "never reached", "want %d places, got %+v", places, l.State())
}

// A service that has become permanently slower is the new base after a probe, and the places
// come back.
func TestAdaptiveForgetsTheBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewAdaptive(1, 20)
		s := &service{atOnce: 100, takes: 10 * time.Millisecond}
		reaches(t, l, s, 20)
		s.takes = 100 * time.Millisecond
		reaches(t, l, s, 1)
		reaches(t, l, s, 20)
		require.Equal(t, s.takes, l.State().Base)
	})
}

// Failures lower the number of places, and never below the least; a few do not matter.
func TestAdaptiveHeedsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewAdaptive(2, 64)
		s := &service{atOnce: 100, takes: 10 * time.Millisecond}
		reaches(t, l, s, 64)
		s.fails = true
		reaches(t, l, s, 2)
		require.Equal(t, 0.5, l.State().Gradient)
		s.fails = false
		reaches(t, l, s, 64)
		for range 100 {
			g, _ := l.Acquire(none(), 50)
			n := g.Messages
			l.Fill(g, n, 1)
			l.Release(limiter.Released{Settled: n, Bytes: 1, Runs: n, Failed: n / 10, Took: time.Duration(n) * s.takes})
		}
		require.Equal(t, 1.0, l.State().Gradient, "a tenth failed")
	})
}

// A queue is not taken for the base, even if the base was unknown when it grew.
func TestAdaptiveDoesNotTakeAQueueForTheBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewAdaptive(1, 100)
		reaches(t, l, &service{atOnce: 1000, takes: time.Second}, 100)
		s := &service{atOnce: 5, takes: 100 * time.Millisecond}
		feed(t, l, s, 12*time.Minute)
		require.LessOrEqual(t, l.State().Limit, 15, "%+v", l.State())
	})
}

// Runs that began before the number of places has changed do not change it again.
func TestAdaptiveWaitsForItsEffect(t *testing.T) {
	l := limiter.NewAdaptive(1, 64)
	reaches(t, l, &service{atOnce: 100, takes: time.Millisecond}, 64)
	g, err := l.Acquire(t.Context(), 64)
	require.NoError(t, err)
	require.Equal(t, 64, g.Messages)
	l.Fill(g, 64, 64)
	failed := limiter.Released{Settled: 1, Bytes: 1, Runs: 1, Failed: 1, Took: time.Millisecond}
	for l.State().Limit == 64 {
		l.Release(failed)
		if l.State().Limit == 64 {
			g, err = l.Acquire(t.Context(), 1)
			require.NoError(t, err)
			l.Fill(g, 1, 1)
		}
	}
	limit := l.State().Limit
	require.Less(t, limit, 64, "most runs of a round have failed")
	for range 40 { // of the 64 at that time, at least
		l.Release(failed)
	}
	require.Equal(t, limit, l.State().Limit)
}

// While few messages come, the number of places does not grow.
func TestAdaptiveGrowsOnlyInUse(t *testing.T) {
	l := limiter.NewAdaptive(4, 64)
	for range 1000 {
		g, err := l.Acquire(t.Context(), 50)
		require.NoError(t, err)
		l.Fill(g, 1, 1)
		l.Release(limiter.Released{Settled: 1, Bytes: 1, Runs: 1, Took: time.Millisecond})
	}
	require.Equal(t, 4, l.State().Limit)
}

func TestAdaptiveIsRefused(t *testing.T) {
	require.Panics(t, func() { limiter.NewAdaptive(0, 1) })
	require.Panics(t, func() { limiter.NewAdaptive(2, 1) })
}
