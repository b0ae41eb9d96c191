package rate_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/limiter/rate"
)

// take acquires up to max places, and settles a message in each.
func take(t *testing.T, l limiter.Limiter, max int) int {
	g, err := l.Acquire(t.Context(), max)
	require.NoError(t, err)
	fill(l, g)
	return g.Messages
}

// fill ends the read of a grant with as many messages, and settles them.
func fill(l limiter.Limiter, g limiter.Grant) {
	l.Fill(g, g.Messages, int64(g.Messages))
	l.Release(limiter.Released{Settled: g.Messages, Bytes: int64(g.Messages)})
}

// In any time no more messages are read than the burst and the rate allow, and a reader
// that never pauses gets all of them.
func TestHoldsTheRate(t *testing.T) {
	for _, c := range []struct {
		perSecond float64
		burst     int
	}{{100, 20}, {100, 1}, {0.2, 1}, {3.7, 2}, {50_000, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			l := rate.New(c.perSecond, c.burst)
			time.Sleep(time.Hour) // the burst does not grow
			start, got := time.Now(), 0
			for got < 20*c.burst {
				got += take(t, l, 7)
				most := float64(c.burst) + time.Since(start).Seconds()*c.perSecond
				require.LessOrEqual(t, float64(got), most+1e-6, "messages after %v at %v/s, burst %d", time.Since(start), c.perSecond, c.burst)
			}
			want := float64(20*c.burst-c.burst) / c.perSecond
			require.InDelta(t, want, time.Since(start).Seconds(), want/20+8/c.perSecond)
		})
	}
}

// A read that brings nothing costs no part of the rate, however often it is repeated.
func TestUnusedPlacesReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.New(1, 10)
		for range 100 {
			g, err := l.Acquire(t.Context(), 50)
			require.NoError(t, err)
			require.Equal(t, 10, g.Messages)
			l.Fill(g, 0, 0)
		}
		require.Equal(t, 10, take(t, l, 50))
	})
}

// A subscription that waits for messages of an empty topic takes nothing from another one
// that shares the rate. Together they stay within the rate, but for one message.
func TestIdleSubscriptionTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.New(10, 1)
		idle, err := l.Acquire(t.Context(), 5)
		require.NoError(t, err)
		start := time.Now()
		for range 101 {
			take(t, l, 5)
		}
		require.InDelta(t, 10, time.Since(start).Seconds(), 0.01)
		fill(l, idle) // one ahead of the rate
		start = time.Now()
		take(t, l, 5)
		require.InDelta(t, 0.2, time.Since(start).Seconds(), 0.01, "for which the next one waits")
	})
}

// A read that waits keeps its places while others spend all tokens. Its messages then
// exceed the bound, by burst at most, and the next message waits for as many tokens.
func TestAWaitingReadMayExceedTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.New(1, 10)
		waiting, err := l.Acquire(t.Context(), 20)
		require.NoError(t, err)
		start, got := time.Now(), 0
		for got < 10 {
			got += take(t, l, 20)
		}
		fill(l, waiting)
		require.Zero(t, time.Since(start))
		require.Equal(t, 20, waiting.Messages+got, "twice the burst")
		take(t, l, 1)
		require.Equal(t, 11*time.Second, time.Since(start))
	})
}

// Places that wait for messages are not granted twice.
func TestGrantedPlacesCount(t *testing.T) {
	l := rate.New(0.001, 10)
	for _, want := range []int{7, 3} {
		g, err := l.Acquire(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, want, g.Messages)
	}
}

// Several subscriptions share the rate.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.New(100, 10)
		var wg sync.WaitGroup
		var got [4]int
		for i := range got {
			wg.Go(func() {
				for start := time.Now(); time.Since(start) < time.Minute; {
					got[i] += take(t, l, 3)
				}
			})
		}
		wg.Wait()
		sum := 0
		for _, n := range got {
			require.Greater(t, n, 500, "each gets its share")
			sum += n
		}
		require.InDelta(t, 6000, sum, 20)
	})
}

// Acquire ends with its context.
func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.New(0.001, 1)
		take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		g, err := l.Acquire(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, g)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestRefused(t *testing.T) {
	require.Panics(t, func() { rate.New(0, 1) })
	require.Panics(t, func() { rate.New(1, 0) })
	require.Panics(t, func() { rate.New(1, 1).Fill(limiter.Grant{Messages: 1}, 0, 0) })
}

// A burst without an end grants as many places as a reader asks for.
func TestHugeBurst(t *testing.T) {
	g, err := rate.New(1e6, math.MaxInt).Acquire(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 100, g.Messages)
}
