package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		never := func(context.Context) bool { return false }
		require.NoError(t, NewIdleTimer().Wait(t.Context(), 5*time.Second, never))
		require.Equal(t, 5*time.Second, time.Since(start), "from its start on")

		start = time.Now()
		w := NewIdleTimer()
		go func() {
			time.Sleep(3 * time.Second)
			w.Begin()
			time.Sleep(time.Minute)
			w.End()
		}()
		require.NoError(t, w.Wait(t.Context(), 5*time.Second, never))
		require.InDelta(t, 68, time.Since(start).Seconds(), 5.1, "after the end of what ran")
		require.GreaterOrEqual(t, time.Since(start), 68*time.Second)

		start = time.Now()
		until30 := func(context.Context) bool { return time.Since(start) < 30*time.Second }
		require.NoError(t, NewIdleTimer().Wait(t.Context(), 5*time.Second, until30))
		require.InDelta(t, 34, time.Since(start).Seconds(), 1.1, "after the last time that something waited")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := NewIdleTimer().Wait(ctx, 5*time.Second, func(context.Context) bool { return true })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
