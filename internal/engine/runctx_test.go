package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

type ctxKey struct{}

var errRanLate = &observer.TimeoutError{After: time.Minute}

func newRunCtx(deadline time.Time) *runCtx {
	on := &runEnv{newClock(), context.WithValue(context.Background(), ctxKey{}, "v"), errRanLate}
	at := instant(0)
	if !deadline.IsZero() {
		at = on.instant(deadline)
	}
	c := &runCtx{}
	c.prepare(on)
	c.limit(at)
	return c
}

func TestRunCtxCancelled(t *testing.T) {
	for _, asked := range []bool{false, true} {
		c := newRunCtx(time.Time{})
		require.Equal(t, "v", c.Value(ctxKey{}))
		if asked {
			require.False(t, isClosed(c.Done()))
		}
		c.cancel(ErrShutdown)
		c.cancel(errNack) // too late to change anything
		require.True(t, isClosed(c.Done()))
		require.Equal(t, context.Canceled, c.Err())
		require.Equal(t, ErrShutdown, context.Cause(c))
		require.Equal(t, "v", c.Value(ctxKey{}))
	}
}

// A run that takes too long ends with DeadlineExceeded, and so do contexts derived from its own.
func TestRunCtxTimeout(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newRunCtx(time.Now().Add(time.Minute))
			var child context.Context = c
			if asked {
				var cancel context.CancelFunc
				child, cancel = context.WithCancel(c)
				defer cancel()
			}
			time.Sleep(time.Minute - 1)
			synctest.Wait()
			require.NoError(t, child.Err())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			c.cancel(errRanLate)
			require.Equal(t, context.DeadlineExceeded, child.Err())
			require.Equal(t, error(errRanLate), context.Cause(child))
			require.True(t, isClosed(c.Done()))
			require.Equal(t, context.DeadlineExceeded, c.Err())
		})
	}
}

// A lease can be lost before the run has started.
func TestRunCtxCancelledBeforeItBegins(t *testing.T) {
	c := newRunCtx(time.Time{})
	c.cancel(ErrShutdown)
	c.limit(1)
	require.Equal(t, context.Canceled, c.Err())
	require.Equal(t, ErrShutdown, context.Cause(c))
}

func TestRunCtxFinished(t *testing.T) {
	c := newRunCtx(time.Now().Add(time.Hour))
	deadline, ok := c.Deadline()
	require.True(t, ok)
	require.WithinDuration(t, time.Now().Add(time.Hour), deadline, time.Minute)
	c.finish()
	require.Equal(t, context.Canceled, c.Err())
	require.Equal(t, context.Canceled, context.Cause(c))
	require.True(t, isClosed(c.Done()))
}

// A caller of Done gets a closed channel if the run ends at the same time.
func TestRunCtxAskedAsItEnds(t *testing.T) {
	for i := range 2000 {
		c := newRunCtx(time.Time{})
		var all sync.WaitGroup
		all.Go(func() { <-c.Done() })
		all.Go(func() { context.AfterFunc(c, all.Done) })
		all.Add(1)
		if i%2 == 0 {
			all.Go(func() { c.cancel(ErrShutdown) })
		}
		all.Go(c.finish)
		all.Wait()
		require.Equal(t, context.Canceled, c.Err())
	}
}

// Derived contexts end with the same error and cause, and cost no goroutine.
func TestRunCtxChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRunCtx(time.Time{})
		child, cancel := context.WithCancel(c)
		defer cancel()
		grandchild, cancel2 := context.WithTimeout(child, time.Hour)
		defer cancel2()
		called := false
		context.AfterFunc(c, func() { called = true })
		stopped := context.AfterFunc(c, func() { t.Error("stopped function was called") })
		require.True(t, stopped())
		c.cancel(ErrShutdown)
		synctest.Wait()
		require.Equal(t, context.Canceled, child.Err())
		require.Equal(t, ErrShutdown, context.Cause(child))
		require.Equal(t, ErrShutdown, context.Cause(grandchild))
		require.True(t, called)
		late, cancel3 := context.WithCancel(c)
		defer cancel3()
		require.Equal(t, ErrShutdown, context.Cause(late))
	})
}

func TestRunCtxCostsNothingUnasked(t *testing.T) {
	on := &runEnv{newClock(), t.Context(), errRanLate}
	var cs [101]runCtx
	i := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c := &cs[i]
		i++
		c.prepare(on)
		c.limit(0)
		_ = c.Err()
		c.finish()
	}))
}
