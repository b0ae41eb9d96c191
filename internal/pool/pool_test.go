package pool_test

import (
	"context"
	"errors"
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
	return pool.New(size, func() (*thing, error) {
		made++
		return &thing{n: made, cut: make(chan struct{})}, nil
	}, func(t *thing) error {
		t.freed++
		return nil
	})
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

// A failed create leaves its place free.
func TestCreateFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	p := pool.New(1, func() (*thing, error) { return nil, broken }, func(*thing) error { return nil })
	for range 3 {
		_, err := p.Get(t.Context())
		require.ErrorIs(t, err, broken)
	}
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
	require.NoError(t, p.Close(nil))
	require.Equal(t, 1, idle.freed)
	require.Zero(t, lent.freed)
	_, err = p.Get(t.Context())
	require.ErrorIs(t, err, backend.ErrClosed)
	p.Put(lent)
	require.Equal(t, 1, lent.freed)
	require.NoError(t, p.Close(nil))
	require.Equal(t, 1, idle.freed)
}

// With cut, Close ends the lent objects, waits for them, and returns the errors of
// freeing.
func TestCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		p := pool.New(2, func() (*thing, error) { return &thing{cut: make(chan struct{})}, nil }, func(*thing) error { return bad })
		one, err := p.Get(t.Context())
		require.NoError(t, err)
		go func() {
			<-one.cut
			time.Sleep(time.Second)
			p.Put(one)
		}()
		began := time.Now()
		require.ErrorIs(t, p.Close(func(t *thing) { close(t.cut) }), bad)
		require.Equal(t, time.Second, time.Since(began))
	})
}
