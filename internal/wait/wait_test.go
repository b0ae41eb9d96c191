package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/wait"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, wait.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, wait.Sleep(ctx, time.Minute))
		require.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}

// The delays double up to Max, give or take half, and start over after a success.
func TestBackoff(t *testing.T) {
	b := wait.Broker()
	for range 2 {
		for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			want *= time.Millisecond
			got := b.Next()
			require.GreaterOrEqual(t, got, want/2)
			require.Less(t, got, want*3/2)
		}
		b.Reset()
	}
}

func TestDoubled(t *testing.T) {
	for _, row := range []struct {
		n    int
		want time.Duration
	}{{0, 10}, {1, 20}, {3, 80}, {4, 100}, {62, 100}, {1000, 100}} {
		require.Equal(t, row.want, wait.Doubled(10, 100, row.n), "%d failures", row.n)
	}
	require.Equal(t, time.Duration(5), wait.Doubled(10, 5, 0))
}

// The first caller is admitted first, even if the one behind it asks for less.
func TestQueueKeepsOrder(t *testing.T) {
	var q wait.Queue[int, string]
	free := 1
	admit := func() {
		q.Admit(func(n int) (string, bool) {
			if n > free {
				return "", false
			}
			free -= n
			return "granted", true
		})
	}
	large, small := q.Join(2), q.Join(1)
	admit()
	require.Empty(t, large.Granted)
	require.Empty(t, small.Granted)
	free = 2
	admit()
	require.Equal(t, "granted", <-large.Granted)
	require.False(t, q.Leave(large), "it was admitted")
	require.Empty(t, small.Granted)
	require.True(t, q.Leave(small))
	require.Zero(t, q.Len())
}
