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

func TestFullIsFlushedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(3, batch.Waits, r.flush)
		start := time.Now()
		for i := range 7 {
			g.Add(i)
		}
		synctest.Wait()
		sizes, _, at := r.seen()
		require.Equal(t, []int{3, 3}, sizes)
		require.Equal(t, start, at[1])
		g.Wait()
		sizes, items, _ := r.seen()
		require.Equal(t, []int{3, 3, 1}, sizes)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, items)
	})
}

func TestFlushEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := batch.New(10, batch.Waits, r.flush)
		g.Flush() // does nothing without items
		g.Add(1)
		g.Flush()
		synctest.Wait()
		require.Equal(t, []int{1}, r.sized())
		g.Wait()
	})
}

// A Flush while another one is under way makes all items due, even if they are more than one batch.
func TestFlushOfMoreThanABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(3, batch.Waits, r.flush)
		g.Add(0, 1, 2)
		synctest.Wait()
		g.Add(3, 4)
		g.Flush()
		g.Add(5, 6)
		g.Flush()
		time.Sleep(time.Minute)
		require.Equal(t, []int{3, 3, 1}, r.sized())
		g.Add(7)
		time.Sleep(time.Minute)
		require.Equal(t, []int{3, 3, 1}, r.sized(), "nothing has made it due")
		g.Wait()
	})
}

func TestGathersWhileAFlushIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.New(100, batch.AtOnce, r.flush)
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
		g := batch.New(2, batch.Waits, r.flush)
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
	g := batch.New(64, batch.Waits, r.flush)
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
