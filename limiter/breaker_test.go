package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

// run acquires n places, and releases them after n runs, of which some have failed.
func run(t *testing.T, l limiter.Limiter, n, failed int) {
	t.Helper()
	for i := range n {
		got, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		l.Fill(got, 1, 1)
		r := limiter.Released{Settled: 1, Bytes: 1, Runs: 1}
		if i >= n-failed {
			r.Failed = 1
		}
		l.Release(r)
	}
}

// isOpen expects that l grants nothing, and says until when.
func isOpen(t *testing.T, l *limiter.Breaker, wait time.Duration) {
	t.Helper()
	g, err := l.Acquire(t.Context(), 5)
	require.Zero(t, g)
	var w *limiter.WaitError
	require.ErrorAs(t, err, &w)
	require.Equal(t, wait, time.Until(w.Until))
	require.Equal(t, limiter.Open, l.State())
}

// The whole life of a breaker: it opens by the share of failures, grants nothing during the
// pause, opens again when a trial fails, and closes when the trials succeed.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewBreaker(limiter.BreakerOptions{Failures: 0.4, Pause: time.Minute, Trials: 2})
		require.Equal(t, limiter.Closed, l.State())
		run(t, l, 9, 3)
		require.Equal(t, limiter.Closed, l.State(), "too few runs")
		run(t, l, 1, 1)
		isOpen(t, l, time.Minute)
		time.Sleep(20 * time.Second)
		isOpen(t, l, 40*time.Second)
		l.Release(limiter.Released{Runs: 1, Failed: 1}) // a run of before
		isOpen(t, l, 40*time.Second)

		time.Sleep(40 * time.Second)
		g, err := l.Acquire(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, 2, g.Messages, "two trials")
		require.Equal(t, limiter.HalfOpen, l.State())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		none, err := l.Acquire(ctx, 5)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, none, "and no more")
		l.Fill(g, 2, 2)
		l.Release(limiter.Released{Settled: 1, Runs: 1})
		require.Equal(t, limiter.HalfOpen, l.State())
		l.Release(limiter.Released{Settled: 1, Runs: 1, Failed: 1})
		isOpen(t, l, time.Minute)

		time.Sleep(time.Minute)
		run(t, l, 2, 0)
		require.Equal(t, limiter.Closed, l.State())
		g, err = l.Acquire(t.Context(), 500)
		require.NoError(t, err)
		require.Equal(t, 500, g.Messages)
		run(t, l, 10, 3)
		require.Equal(t, limiter.Closed, l.State(), "the failures of before are forgotten")
	})
}

// Only the runs of the window count.
func TestBreakerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewBreaker(limiter.BreakerOptions{})
		for i := range 1000 {
			run(t, l, 9, 9)
			time.Sleep(time.Duration(10+i%17) * time.Second)
		}
		require.Equal(t, limiter.Closed, l.State())
		run(t, l, 5, 5)
		time.Sleep(8 * time.Second)
		run(t, l, 5, 5)
		require.Equal(t, limiter.Open, l.State())
	})
}

// A breaker that closes within the window has forgotten the failures that opened it.
func TestBreakerClosesWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewBreaker(limiter.BreakerOptions{Pause: time.Second})
		run(t, l, 10, 10)
		isOpen(t, l, time.Second)
		time.Sleep(time.Second)
		run(t, l, 1, 0)
		run(t, l, 9, 4)
		require.Equal(t, limiter.Closed, l.State())
	})
}

// Messages read before the pause and settled after it make no room for more trials.
func TestBreakerCountsTrialsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.NewBreaker(limiter.BreakerOptions{})
		old, err := l.Acquire(t.Context(), 3)
		require.NoError(t, err)
		l.Fill(old, 3, 3)
		run(t, l, 10, 10)
		time.Sleep(30 * time.Second)
		for _, r := range []limiter.Released{{}, {Settled: 2}, {Settled: 1}} {
			l.Release(r)
			g, _ := l.Acquire(none(), 5)
			require.Equal(t, r == limiter.Released{}, g.Messages == 1, "%d trials after %+v", g.Messages, r)
		}
		l.Release(limiter.Released{Settled: 1})
		g, err := l.Acquire(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, 1, g.Messages, "the trial was not run")
		l.Release(limiter.Released{Settled: 1, Runs: 1})
		require.Equal(t, limiter.Closed, l.State())
	})
}

// A caller that waits for the trials continues when they have succeeded, and when their read
// ends without messages.
func TestBreakerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 1} {
			l := limiter.NewBreaker(limiter.BreakerOptions{})
			run(t, l, 10, 5)
			time.Sleep(30 * time.Second)
			g, err := l.Acquire(t.Context(), 1)
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() {
				l.Fill(g, n, int64(n))
				l.Release(limiter.Released{Settled: n, Runs: n})
			})
			start := time.Now()
			_, err = l.Acquire(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, time.Second, time.Since(start))
		}
	})
}

// All keeps no places of other limiters while a breaker among them is open.
func TestOpenBreakerKeepsNoPlaces(t *testing.T) {
	shared, b := limiter.MaxInFlight(5), limiter.NewBreaker(limiter.BreakerOptions{})
	run(t, b, 10, 10)
	_, err := limiter.All(shared, b).Acquire(t.Context(), 5)
	require.Error(t, err)
	g, err := shared.Acquire(none(), 5)
	require.NoError(t, err)
	require.Equal(t, 5, g.Messages)
}

func TestBreakerIsRefused(t *testing.T) {
	require.Panics(t, func() { limiter.NewBreaker(limiter.BreakerOptions{Failures: 1.1}) })
	require.Panics(t, func() { limiter.NewBreaker(limiter.BreakerOptions{Pause: -1}) })
}

// A trial read that ends without messages gives its place back, although a run from before
// the pause has not ended.
func TestBreakerTriesAgainAfterAnEmptyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limiter.NewBreaker(limiter.BreakerOptions{})
		old, err := b.Acquire(t.Context(), 11)
		require.NoError(t, err)
		b.Fill(old, 11, 11)
		b.Release(limiter.Released{Settled: 10, Runs: 10, Failed: 10}) // one run continues
		time.Sleep(31 * time.Second)
		for range 3 {
			g, err := b.Acquire(t.Context(), 5)
			require.NoError(t, err)
			require.Equal(t, 1, g.Messages)
			b.Fill(g, 0, 0)
		}
	})
}
