package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

// Of several limiters the smallest grant counts. The other limiters get the rest of their
// grants back.
func TestAllGrantsTheLeast(t *testing.T) {
	five, three := limiter.MaxInFlight(5), limiter.MaxInFlight(3)
	l := limiter.All(five, three)
	n, err := l.Acquire(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = five.Acquire(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 2, n, "of five, three are taken")
	five.Release(limiter.Released{Unused: 2})

	l.Fill(3, 300)
	l.Release(limiter.Released{Settled: 3, Bytes: 300})
	for _, one := range []limiter.Limiter{five, three} {
		require.Panics(t, func() { one.Release(limiter.Released{Settled: 1}) }, "every place is back")
	}
}

// All waits for each limiter, and keeps no places when ctx ends.
func TestAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := limiter.MaxInFlight(4), limiter.MaxInFlight(1)
		l := limiter.All(first, second)
		n, err := l.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, 1, n)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		n, err = l.Acquire(ctx, 4)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, n)
		require.Equal(t, time.Minute, time.Since(start))
		n, err = first.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, 3, n)

		time.AfterFunc(time.Hour, func() { l.Release(limiter.Released{Unused: 1}) })
		first.Release(limiter.Released{Unused: 3})
		n, err = l.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestAllNeedsLimiters(t *testing.T) {
	require.Panics(t, func() { limiter.All() })
	require.Panics(t, func() { limiter.All(nil) })
}
