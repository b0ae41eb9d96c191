package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
)

func TestQuotaIsNeverExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQuota(3, limiter.Both(2, 0))
		acquire := func(n int) int {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			got, err := q.Acquire(ctx, n)
			require.Equal(t, got.Messages == 0, err != nil)
			return got.Messages
		}
		require.Equal(t, 2, acquire(10), "what the other limiter grants")
		require.Zero(t, acquire(1))
		q.Fill(limiter.Grant{Messages: 2}, 2, 20)
		q.Release(limiter.Released{Settled: 1, Failed: 1, Bytes: 10})
		require.Equal(t, 1, acquire(10), "a failure may be tried again")
		q.Fill(limiter.Grant{Messages: 1}, 1, 10)
		q.Succeeded()
		q.Succeeded()
		q.Release(limiter.Released{Settled: 2, Bytes: 20})
		require.Equal(t, 1, acquire(10))

		waited := make(chan int)
		go func() {
			g, _ := q.Acquire(t.Context(), 5)
			waited <- g.Messages
		}()
		synctest.Wait()
		q.Fill(limiter.Grant{Messages: 1}, 0, 0)
		require.Equal(t, 1, <-waited)
		select {
		case <-q.Done():
			t.Fatal("one is left")
		default:
		}
		q.Succeeded()
		<-q.Done()
		q.Fill(limiter.Grant{Messages: 1}, 1, 0)
		q.Release(limiter.Released{Settled: 1})
		require.Zero(t, acquire(1), "all have succeeded")
	})
}
