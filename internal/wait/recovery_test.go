package wait_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/wait"
)

// A success wakes everyone who is sleeping, but nobody earlier than Least after falling asleep.
func TestRecoveryWakesAll(t *testing.T) {
	for _, row := range []struct{ sleep, success, want time.Duration }{
		{time.Minute, 30 * time.Second, 30 * time.Second},
		{time.Minute, time.Millisecond, wait.Least},
		{time.Second, time.Minute, time.Second},
		{time.Millisecond, time.Minute, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var r wait.Recovery
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() { // not time.AfterFunc: Go 1.26 may crash if it starts a goroutine in a bubble with the race detector
				time.Sleep(row.success)
				r.Succeeded()
			})
			for range 10 {
				wg.Go(func() {
					require.True(t, r.Sleep(t.Context(), row.sleep))
					require.Equal(t, row.want, time.Since(start))
				})
			}
			wg.Wait()
		})
	}
}

// A success before the sleep doesn't shorten it, and the end of the context ends it.
func TestRecoveryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r wait.Recovery
		r.Succeeded()
		start := time.Now()
		require.True(t, r.Sleep(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(start))
		for _, at := range []time.Duration{time.Millisecond, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), at)
			require.False(t, r.Sleep(ctx, time.Minute))
			cancel()
		}
	})
}
