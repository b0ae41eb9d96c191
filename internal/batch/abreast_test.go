package batch_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/batch"
)

// Of what has gathered when nothing is under way, each flush gets its share.
func TestAbreast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.NewAbreast(2, 100, 0, r.flush)
		start := time.Now()
		fill(g, 1)
		g.Fence() // so that they gather
		fill(g, 9)
		g.Wait()
		require.Equal(t, []int{1, 4, 5}, r.sized())
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

// A flush begins beside another when as many items have gathered as that has;
// fewer wait for its end, and not longer.
func TestAsManyBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 10 * time.Millisecond
		r := recorder{hold: time.Second}
		g := batch.NewAbreast(2, 100, 0, r.flush)
		for range 2 {
			fill(g, 1)
			time.Sleep(pause)
		}
		fill(g, 4)
		require.Equal(t, []int{1, 1}, r.sized(), "two at once, and no more")
		time.Sleep(time.Second) // both are over: a flush of 4 is under way
		require.False(t, g.Run(0))
		fill(g, 3)
		require.Equal(t, []int{1, 1, 4}, r.sized())
		fill(g, 1)
		require.Equal(t, []int{1, 1, 4, 4}, r.sized())
		time.Sleep(pause)
		fill(g, 1)
		g.Wait()
		sizes, _, at := r.seen()
		require.Equal(t, []int{1, 1, 4, 4, 1}, sizes)
		require.Equal(t, time.Second, at[4].Sub(at[3]))
	})
}

// More than two flushes are under way only while there are a few items for each.
func TestAFewForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			items int
			sizes []int
		}{{15, []int{7, 8}}, {23, []int{11, 12}}, {24, []int{8, 8, 8}}, {100, []int{25, 25, 25, 25}}} {
			r := recorder{hold: time.Second}
			g := batch.NewAbreast(4, 100, 0, r.flush)
			fill(g, 1)
			g.Fence() // so that they gather
			fill(g, c.items)
			g.Wait()
			require.Equal(t, append([]int{1}, c.sizes...), r.sized())
		}
	})
}

// Nothing begins beside a fence; behind it all goes on.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{hold: time.Second}
		g := batch.NewAbreast(2, 100, 0, r.flush)
		g.Fence() // nothing is under way
		require.False(t, g.Fenced())
		go g.Run(1)
		synctest.Wait()
		g.Fence()
		require.True(t, g.Fenced())
		require.False(t, g.Run(2))
		fill(g, 1)
		require.Equal(t, []int{1}, r.sized())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{1, 1}, r.sized())
		require.False(t, g.Fenced())
		go g.Run(3)
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1}, r.sized())
		g.Wait()
	})
}

// At most so many flushes are under way, whoever makes them, and nothing is lost.
func TestManyAbreast(t *testing.T) {
	var mu sync.Mutex
	var sum, now, most int
	g := batch.NewAbreast(3, 7, 0, func(items []int) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(10 * time.Microsecond)
		mu.Lock()
		defer mu.Unlock()
		now--
		for _, i := range items {
			sum += i
		}
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 2000 {
				switch {
				case (i+j)%100 == 0:
					g.Fence()
				case j%3 == 0 && g.Run(1):
					continue
				}
				g.Add(1)
			}
		})
	}
	all.Wait()
	g.Wait()
	require.Equal(t, 16000, sum)
	require.Equal(t, 3, most)
}

// fill adds n items, and returns when what may be flushed is.
func fill(g *batch.Group[int], n int) {
	for i := range n {
		g.Add(i)
	}
	synctest.Wait()
}
