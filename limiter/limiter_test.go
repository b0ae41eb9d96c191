package limiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

// none returns a context that is done, with which Acquire does not wait.
func none() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestMaxInFlight(t *testing.T) {
	l := limiter.MaxInFlight(3)
	n, err := l.Acquire(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = l.Acquire(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, 1, n, "what is left")
	n, err = l.Acquire(none(), 1)
	require.Error(t, err)
	require.Zero(t, n)
	l.Fill(3, 300)
	l.Release(limiter.Released{Settled: 2, Bytes: 200})
	n, err = l.Acquire(none(), 5)
	require.NoError(t, err, "a context that is done only means not to wait")
	require.Equal(t, 2, n)
}

// Acquire wakes up when a place is given back.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MaxInFlight(1)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				n, err := l.Acquire(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, 1, n)
				time.Sleep(time.Second)
				l.Release(limiter.Released{Unused: 1})
			})
		}
		start := time.Now()
		wg.Wait()
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MaxInFlight(1)
		_, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := l.Acquire(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, n)
	})
}

// MaxBytes asks for one message at first, then for as many messages of the largest known
// size as fit.
func TestMaxBytes(t *testing.T) {
	l := limiter.MaxBytes(1000)
	n, _ := l.Acquire(none(), 50)
	require.Equal(t, 1, n, "nothing is known of sizes")
	l.Fill(1, 100)
	n, _ = l.Acquire(none(), 50)
	require.Equal(t, 9, n, "900 bytes are left, and the largest had 100")
	l.Fill(9, 900)
	n, _ = l.Acquire(none(), 50)
	require.Zero(t, n)
	l.Release(limiter.Released{Settled: 10, Bytes: 1000})
	n, _ = l.Acquire(none(), 50)
	require.Equal(t, 10, n)
	l.Release(limiter.Released{Unused: 10})
}

// A message larger than the whole bound passes, alone.
func TestLargerThanTheBound(t *testing.T) {
	l := limiter.Both(100, 1000)
	n, _ := l.Acquire(none(), 50)
	require.Equal(t, 1, n)
	l.Fill(1, 5000)
	n, _ = l.Acquire(none(), 50)
	require.Zero(t, n)
	l.Release(limiter.Released{Settled: 1, Bytes: 5000})
	n, _ = l.Acquire(none(), 50)
	require.Equal(t, 1, n)
}

func TestBothWithoutBytes(t *testing.T) {
	l := limiter.Both(7, -1)
	n, _ := l.Acquire(none(), 50)
	require.Equal(t, 7, n)
}

func TestRefused(t *testing.T) {
	require.Panics(t, func() { limiter.MaxInFlight(0) })
	require.Panics(t, func() { limiter.MaxBytes(0) })
	require.Panics(t, func() { limiter.Both(0, 1) })
	require.Panics(t, func() { limiter.MaxInFlight(1).Release(limiter.Released{Unused: 1}) })
}

// A subscription that waits for its first message leaves a place to others that share the
// limiter, because no size is known yet.
func TestBytesAreSharedBeforeAnySizeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.Both(10, 1000)
		n, err := l.Acquire(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err = l.Acquire(ctx, 5)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// Messages smaller than assumed free room at once.
func TestFillWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MaxBytes(1000)
		n, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		l.Fill(n, 1000)
		l.Release(limiter.Released{Settled: 1, Bytes: 1000})
		n, err = l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { l.Fill(n, 10) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err = l.Acquire(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// Callers that wait for places get them in the order of their calls.
func TestPlacesAreGrantedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MaxInFlight(1)
		_, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		var order []int
		for i := range 5 {
			go func() {
				if _, err := l.Acquire(t.Context(), 1); err == nil {
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			l.Release(limiter.Released{Unused: 1})
			synctest.Wait()
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	})
}
