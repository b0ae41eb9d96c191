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

// recorder keeps the flushed items and the times.
type recorder struct {
	mu    sync.Mutex
	sizes []int
	items []int
	at    []time.Time
	hold  time.Duration // how long each flush takes
}

func (r *recorder) flush(items []int) {
	r.mu.Lock()
	r.sizes, r.at = append(r.sizes, len(items)), append(r.at, time.Now())
	r.items = append(r.items, items...)
	r.mu.Unlock()
	time.Sleep(r.hold)
}

// seen returns the items flushed so far.
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
		g.Flush() // does nothing without items
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

// Items of Later are flushed when their waits are over, in that order. Until then they delay
// no other item.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(10, 0, r.flush)
		start := time.Now()
		g.Later(3, 3*time.Second)
		g.Later(1, time.Second)
		g.Add(0)
		synctest.Wait()
		g.Wait()
		require.Equal(t, 3*time.Second, time.Since(start), "Wait waits for what is to come")
		_, items, at := r.seen()
		require.Equal(t, []int{0, 1, 3}, items)
		require.Equal(t, time.Second, at[1].Sub(start))
	})
}

// A flush may call Later for the items that failed.
func TestLaterOfAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *batch.Group[int]
		var flushed []int
		g = batch.New(10, time.Second, func(items []int) {
			flushed = append(flushed, items...)
			if items[0] < 3 {
				g.Later(items[0]+1, time.Minute)
			}
		})
		g.Add(1)
		start := time.Now()
		g.Wait()
		require.Equal(t, []int{1, 2, 3}, flushed)
		require.Equal(t, 2*time.Minute+2*time.Second, time.Since(start))
	})
}

// Hurry ends the present waits, and no later ones.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(10, 0, r.flush)
		start := time.Now()
		g.Hurry() // does nothing without items
		g.Later(2, 2*time.Hour)
		g.Later(1, time.Hour)
		g.Hurry()
		g.Wait()
		require.Equal(t, start, time.Now())
		g.Later(3, time.Minute)
		g.Wait()
		time.Sleep(3 * time.Hour)
		_, items, at := r.seen()
		require.Equal(t, []int{2, 1, 3}, items)
		require.Equal(t, time.Minute, at[len(at)-1].Sub(start))
	})
}

// No item is lost when many goroutines call all methods.
func TestManyLater(t *testing.T) {
	var r recorder
	g := batch.New(7, 0, r.flush)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				g.Later(i, time.Duration(i%5)*time.Millisecond)
				if i%100 == 0 {
					g.Hurry()
				}
			}
		})
	}
	wg.Wait()
	g.Wait()
	require.Len(t, r.items, 4000)
}
