package limiter_test

import (
	"context"
	"math/rand/v2"
	"slices"
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
	first, err := l.Acquire(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, limiter.Grant{Messages: 2}, first)
	second, err := l.Acquire(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, limiter.Grant{Messages: 1}, second, "what is left")
	g, err := l.Acquire(none(), 1)
	require.Error(t, err)
	require.Zero(t, g)
	l.Fill(first, 2, 200)
	l.Fill(second, 1, 100)
	l.Release(limiter.Released{Settled: 2, Bytes: 200})
	g, err = l.Acquire(none(), 5)
	require.NoError(t, err, "a context that is done only means not to wait")
	require.Equal(t, 2, g.Messages)
	l.Fill(g, 1, 100)
	g, _ = l.Acquire(none(), 5)
	require.Equal(t, 1, g.Messages, "the place that the read has not filled")
}

// Acquire wakes up when a place is given back.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MaxInFlight(1)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				g, err := l.Acquire(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, 1, g.Messages)
				time.Sleep(time.Second)
				l.Fill(g, 0, 0)
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

// MaxBytes grants half of the free bytes, or all of them if they are less than an eighth of
// the bound. Bytes that a read does not use are free again.
func TestMaxBytes(t *testing.T) {
	l := limiter.MaxBytes(1000)
	g, _ := l.Acquire(none(), 50)
	require.Equal(t, limiter.Grant{Messages: 50, Bytes: 500}, g)
	l.Fill(g, 3, 100)
	g, _ = l.Acquire(none(), 50)
	require.Equal(t, limiter.Grant{Messages: 50, Bytes: 450}, g)
	l.Fill(g, 40, 450)
	g, _ = l.Acquire(none(), 50)
	require.EqualValues(t, 225, g.Bytes)
	l.Fill(g, 2, 225)
	g, _ = l.Acquire(none(), 50)
	require.EqualValues(t, 125, g.Bytes, "an eighth")
	l.Fill(g, 2, 124)
	g, _ = l.Acquire(none(), 50)
	require.EqualValues(t, 101, g.Bytes, "the rest")
	l.Fill(g, 1, 200)
	none, err := l.Acquire(none(), 50)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, none)
	l.Release(limiter.Released{Settled: 48, Bytes: 1099})
	g, _ = l.Acquire(t.Context(), 50)
	require.EqualValues(t, 500, g.Bytes)
}

// A message larger than the whole bound passes, alone.
func TestLargerThanTheBound(t *testing.T) {
	l := limiter.Both(100, 1000)
	for range 3 {
		g, err := l.Acquire(none(), 50)
		require.NoError(t, err)
		require.LessOrEqual(t, g.Bytes, int64(1000))
		l.Fill(g, 1, 5000)
		g, _ = l.Acquire(none(), 50)
		require.Zero(t, g)
		l.Release(limiter.Released{Settled: 1, Bytes: 5000})
	}
}

func TestBothWithoutBytes(t *testing.T) {
	l := limiter.Both(7, -1)
	g, _ := l.Acquire(none(), 50)
	require.Equal(t, limiter.Grant{Messages: 7}, g)
}

func TestRefused(t *testing.T) {
	require.Panics(t, func() { limiter.MaxInFlight(0) })
	require.Panics(t, func() { limiter.MaxBytes(0) })
	require.Panics(t, func() { limiter.Both(0, 1) })
	require.Panics(t, func() { limiter.MaxInFlight(1).Fill(limiter.Grant{Messages: 1}, 0, 0) })
	require.Panics(t, func() { limiter.MaxInFlight(1).Release(limiter.Released{Settled: 1}) })
}

// Subscriptions that wait for messages of empty topics leave bytes to others that share the
// limiter: to eight of them, once the limiter knows that it is shared.
func TestWaitingReadsLeaveBytes(t *testing.T) {
	l := limiter.MaxBytes(1000)
	first, _ := l.Acquire(none(), 5)
	second, err := l.Acquire(none(), 5)
	require.NoError(t, err)
	l.Fill(first, 0, 0)
	l.Fill(second, 0, 0)
	for range 8 {
		g, err := l.Acquire(none(), 5)
		require.NoError(t, err)
		require.EqualValues(t, 125, g.Bytes)
	}
	g, _ := l.Acquire(none(), 5)
	require.Zero(t, g)
}

// Bytes that a read has not used wake a caller that waits.
func TestFillWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.Both(1, 1000)
		g, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { l.Fill(g, 0, 0) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err = l.Acquire(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, 1, g.Messages)
	})
}

// However sizes change, and however many subscriptions share the limiter, the messages held
// exceed the bound by one message at most. They reach most of the bound.
func TestBytesAreExceededByOneMessage(t *testing.T) {
	const bound = 4 << 20
	for _, readers := range []int{1, 2, 7, 20} {
		for _, largest := range []int64{300, 20 << 10, bound / 8} {
			l := limiter.MaxBytes(bound)
			random := rand.New(rand.NewPCG(uint64(readers), uint64(largest)))
			var open []limiter.Grant
			var sizes []int64
			held, most := int64(0), int64(0)
			for range 50_000 {
				switch random.IntN(3) {
				case 0:
					if g, err := l.Acquire(none(), 1024); err == nil && len(open) < readers {
						open = append(open, g)
					} else if err == nil {
						l.Fill(g, 0, 0)
					}
				case 1:
					if len(open) == 0 {
						continue
					}
					at := random.IntN(len(open))
					g, got, n := open[at], int64(0), 0
					open = slices.Delete(open, at, at+1)
					for n < g.Messages {
						size := 1 + random.Int64N(largest)
						if n > 0 && got+size > g.Bytes {
							break
						}
						n, got, sizes = n+1, got+size, append(sizes, size)
					}
					l.Fill(g, n, got)
					held += got
					most = max(most, held)
				default:
					n := min(random.IntN(20), len(sizes))
					var bytes int64
					for _, size := range sizes[:n] {
						bytes += size
					}
					sizes = sizes[n:]
					held -= bytes
					l.Release(limiter.Released{Settled: n, Bytes: bytes})
				}
				require.LessOrEqual(t, held, bound+largest, "%d readers, messages of up to %d bytes", readers, largest)
			}
			require.Greater(t, most, int64(bound/2))
		}
	}
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
			l.Fill(limiter.Grant{Messages: 1}, 0, 0)
			synctest.Wait()
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	})
}
