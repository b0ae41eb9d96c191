package batch_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/batch"
)

// recorder keeps what was flushed and when.
type recorder struct {
	mu    sync.Mutex
	sizes []int
	items []int
	at    []time.Time
	hold  time.Duration // of each flush
}

func (r *recorder) flush(items []int) {
	r.mu.Lock()
	r.sizes, r.at = append(r.sizes, len(items)), append(r.at, time.Now())
	r.items = append(r.items, items...)
	r.mu.Unlock()
	time.Sleep(r.hold)
}

// seen returns what was flushed so far.
func (r *recorder) seen() (sizes, items []int, at []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sizes), slices.Clone(r.items), slices.Clone(r.at)
}

func (r *recorder) sized() []int { sizes, _, _ := r.seen(); return sizes }

func TestWaitsForSoLongAfterTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(10, 2*time.Millisecond, r.flush)
		for range 2 {
			start := time.Now()
			g.Add(1)
			time.Sleep(1500 * time.Microsecond)
			g.Add(2)
			time.Sleep(time.Second)
			synctest.Wait()
			_, _, at := r.seen()
			require.Equal(t, 2*time.Millisecond, at[len(at)-1].Sub(start))
		}
		g.Wait()
		require.Equal(t, []int{2, 2}, r.sized())
	})
}

func TestFullIsFlushedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(3, time.Hour, r.flush)
		start := time.Now()
		for i := range 7 {
			g.Add(i)
		}
		synctest.Wait()
		sizes, _, at := r.seen()
		require.Equal(t, []int{3, 3}, sizes)
		require.Equal(t, start, at[1])
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		sizes, items, _ := r.seen()
		require.Equal(t, []int{3, 3, 1}, sizes)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, items)
		g.Wait()
	})
}

func TestFlushEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(10, time.Hour, r.flush)
		g.Flush() // nothing gathered: nothing happens
		g.Add(1)
		g.Flush()
		synctest.Wait()
		require.Equal(t, []int{1}, r.sized())
		g.Wait()
	})
}

func TestGathersWhileAFlushIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(100, 0, r.flush)
		for i := range 10 {
			g.Add(i)
			synctest.Wait()
		}
		g.Wait()
		require.Equal(t, []int{1, 9}, r.sized())
	})
}

func TestWaitReturnsWhenNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(2, time.Hour, r.flush)
		start := time.Now()
		for i := range 5 {
			g.Add(i)
		}
		g.Wait()
		require.Len(t, r.items, 5)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestManyAdd(t *testing.T) {
	var r recorder
	g := batch.New(64, time.Millisecond, r.flush)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				g.Add(i)
			}
		})
	}
	wg.Wait()
	g.Wait()
	require.Len(t, r.items, 8000)
}

// TestGoroutineStaysAWhile: that it leaves at all is seen by synctest, which
// does not end with a goroutine left.
func TestGoroutineStaysAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(1, 0, r.flush)
		for range 3 {
			g.Add(1)
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		require.Len(t, r.sized(), 3)
		time.Sleep(2 * time.Second)
	})
}

// Run flushes in the caller's goroutine, and at once, where nobody else does.
func TestRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(10, 0, r.flush)
		for i := range 3 {
			start := time.Now()
			require.True(t, g.Run(i))
			require.Equal(t, time.Second, time.Since(start))
		}
		require.Equal(t, []int{1, 1, 1}, r.sized())
		g.Wait()
	})
}

// Run does not flush beside another flush, be it its own or that of Add; what is
// added meanwhile is flushed after it.
func TestRunBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(10, 0, r.flush)
		go g.Run(1)
		synctest.Wait()
		require.False(t, g.Run(2))
		g.Add(3)
		g.Add(4)
		require.False(t, g.Run(5))
		time.Sleep(time.Second)
		synctest.Wait() // the flush of 3 and 4 is under way
		require.False(t, g.Run(6))
		g.Wait()
		_, items, at := r.seen()
		require.Equal(t, []int{1, 3, 4}, items)
		require.Equal(t, time.Second, at[1].Sub(at[0]))
		require.False(t, g.Run(7), "the last flush was shared")
		g.Add(7)
		g.Wait()
		require.True(t, g.Run(8))
	})
}

// Wait waits for Run, and for what was added during it.
func TestWaitForRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(10, 0, r.flush)
		g.Add(0)
		time.Sleep(1500 * time.Millisecond) // its goroutine is there, and idle
		start := time.Now()
		go g.Run(1)
		synctest.Wait()
		go func() { g.Add(2) }()
		g.Wait()
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, []int{1, 1, 1}, r.sized())
	})
}

// A flush that panics leaves the group usable.
func TestRunPanics(t *testing.T) {
	bad := true
	g := batch.New(10, 0, func([]int) {
		if bad {
			panic("bad")
		}
	})
	require.Panics(t, func() { g.Run(1) })
	bad = false
	require.True(t, g.Run(2))
}

// Flushes never overlap, whoever makes them, and nothing is lost.
func TestManyRun(t *testing.T) {
	var mu sync.Mutex
	var sum, flushes int
	g := batch.New(7, 0, func(items []int) {
		if !mu.TryLock() {
			t.Error("two flushes at once")
			return
		}
		defer mu.Unlock()
		flushes++
		for _, i := range items {
			sum += i
		}
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				if i%3 == 0 || !g.Run(1) {
					g.Add(1)
				}
			}
		})
	}
	all.Wait()
	g.Wait()
	require.Equal(t, 16000, sum)
	require.NotZero(t, flushes)
}
