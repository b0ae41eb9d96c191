package pool_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
)

type thing struct {
	n     int
	freed int
	cut   chan struct{}
}

// things returns a pool that numbers its objects.
func things(size int) *pool.Pool[*thing] {
	made := 0
	return pool.New(size, func() *thing {
		made++
		return &thing{n: made, cut: make(chan struct{})}
	}, func(t *thing) { t.freed++ })
}

// Get creates an object only if none is idle, and reuses the last one first.
func TestReuse(t *testing.T) {
	t.Parallel()
	p := things(3)
	a, err := p.Get(t.Context())
	require.NoError(t, err)
	b, err := p.Get(t.Context())
	require.NoError(t, err)
	require.NotSame(t, a, b)
	p.Put(b)
	p.Put(a)
	c, err := p.Get(t.Context())
	require.NoError(t, err)
	require.Same(t, a, c)
}

// When all objects are lent, Get waits until its context ends.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := things(1)
		one, err := p.Get(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Get(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		time.AfterFunc(time.Second, func() { p.Put(one) })
		same, err := p.Get(t.Context())
		require.NoError(t, err)
		require.Same(t, one, same)
	})
}

// An object lent at Close is freed once, by Put.
func TestClose(t *testing.T) {
	t.Parallel()
	p := things(2)
	lent, err := p.Get(t.Context())
	require.NoError(t, err)
	idle, err := p.Get(t.Context())
	require.NoError(t, err)
	p.Put(idle)
	p.Close(nil)
	require.Equal(t, 1, idle.freed)
	require.Zero(t, lent.freed)
	_, err = p.Get(t.Context())
	require.ErrorIs(t, err, backend.ErrClosed)
	p.Put(lent)
	require.Equal(t, 1, lent.freed)
	p.Close(nil)
	require.Equal(t, 1, idle.freed)
}

// With cut, Close ends the use of the lent objects, and waits for them.
func TestCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := things(2)
		one, err := p.Get(t.Context())
		require.NoError(t, err)
		go func() {
			<-one.cut
			time.Sleep(time.Second)
			p.Put(one)
		}()
		began := time.Now()
		p.Close(func(t *thing) { close(t.cut) })
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, 1, one.freed)
	})
}

// Two calls of Close that wait at the same time both return when the objects are returned.
func TestConcurrentCloses(t *testing.T) {
	t.Parallel()
	for range 100 {
		p := things(8)
		one, err := p.Get(t.Context())
		require.NoError(t, err)
		var closes sync.WaitGroup
		for range 8 {
			closes.Go(func() { p.Close(func(*thing) {}) })
		}
		p.Put(one)
		closes.Wait()
	}
}
