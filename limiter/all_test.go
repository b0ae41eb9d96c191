package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

// Of several limiters the smallest grant counts, for messages and for bytes. The other
// limiters get the rest of their grants back.
func TestAllGrantsTheLeast(t *testing.T) {
	for _, limiters := range [][]limiter.Limiter{
		{limiter.MaxInFlight(5), limiter.Both(3, 2000), limiter.MaxBytes(1000), limiter.MaxInFlight(8)},
		{limiter.MaxBytes(1000), limiter.Both(3, 2000), limiter.MaxInFlight(5)},
		{limiter.All(limiter.Both(5, 3000), limiter.MaxInFlight(4)), limiter.MaxBytes(1000), limiter.Both(3, 2000)},
	} {
		l := limiter.All(limiters...)
		g, err := l.Acquire(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, limiter.Grant{Messages: 3, Bytes: 500}, g)
		for _, one := range limiters {
			one.Fill(g, 3, 300)
			require.Panics(t, func() { one.Fill(limiter.Grant{Messages: 1}, 0, 0) }, "no more places are open")
		}
	}
	five := limiter.MaxInFlight(5)
	_, err := limiter.All(five, limiter.MaxInFlight(3)).Acquire(t.Context(), 10)
	require.NoError(t, err)
	g, err := five.Acquire(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 2, g.Messages, "of five, three are taken")
}

// Fill and Release of All reach every limiter.
func TestAllIsSettled(t *testing.T) {
	five, three := limiter.Both(5, 500), limiter.Both(3, 300)
	l := limiter.All(five, three)
	for range 10 {
		g, err := l.Acquire(none(), 10)
		require.NoError(t, err)
		l.Fill(g, 2, 290)
		l.Release(limiter.Released{Settled: 2, Bytes: 290})
	}
	for _, one := range []limiter.Limiter{five, three} {
		require.Panics(t, func() { one.Release(limiter.Released{Settled: 1}) }, "every place is back")
	}
}

// A breaker has counted the failed runs before their places are free again. Otherwise a read that waits
// for a place would begin, although the runs have opened the breaker.
func TestAllOpensABreakerBeforePlacesAreFree(t *testing.T) {
	breaker := limiter.NewBreaker(limiter.BreakerOptions{Runs: 5})
	places := &released{Limiter: limiter.MaxInFlight(10)}
	l := limiter.All(places, breaker)
	g, err := l.Acquire(t.Context(), 10)
	require.NoError(t, err)
	l.Fill(g, 10, 10)
	places.hook = func() { require.Equal(t, limiter.Open, breaker.State()) }
	l.Release(limiter.Released{Settled: 5, Runs: 5, Failed: 5})
	require.Equal(t, 1, places.calls)
}

// A released calls a hook in each Release.
type released struct {
	limiter.Limiter
	hook  func()
	calls int
}

func (r *released) Release(of limiter.Released) {
	r.calls++
	r.hook()
	r.Limiter.Release(of)
}

// All waits for each limiter, and keeps neither places nor bytes when ctx ends.
func TestAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := limiter.Both(4, 1000), limiter.MaxInFlight(1)
		l := limiter.All(first, second)
		g, err := l.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, limiter.Grant{Messages: 1, Bytes: 500}, g)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		none, err := l.Acquire(ctx, 4)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, none)
		require.Equal(t, time.Minute, time.Since(start))
		l.Fill(g, 1, 500)
		rest, err := first.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, limiter.Grant{Messages: 3, Bytes: 500}, rest)
		first.Fill(rest, 0, 0)

		time.AfterFunc(time.Hour, func() { l.Release(limiter.Released{Settled: 1, Bytes: 500}) })
		g, err = l.Acquire(t.Context(), 4)
		require.NoError(t, err)
		require.Equal(t, 1, g.Messages)
	})
}

func TestAllNeedsLimiters(t *testing.T) {
	require.Panics(t, func() { limiter.All() })
	require.Panics(t, func() { limiter.All(nil) })
}
