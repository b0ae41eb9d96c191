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
