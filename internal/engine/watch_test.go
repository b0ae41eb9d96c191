package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

// A hook that is slow delays no timeout.
func TestSlowStuckHookDelaysNothing(t *testing.T) {
	slow := observer.Observer{Stuck: func(observer.Stuck) { time.Sleep(time.Minute) }}
	inBubble(t, Options{Observer: slow}, func(r *rig) {
		var cancelled atomic.Int64
		r.sub(Config{Concurrency: 2, Timeout: 5 * time.Second}, func(ctx context.Context, h *Hold) error {
			if h.Delivery().ID == "stubborn" {
				time.Sleep(15 * time.Second)
				return nil
			}
			<-ctx.Done()
			cancelled.Store(int64(r.at()))
			return nil
		})
		r.publish("stubborn")
		r.pass(9 * time.Second)
		r.publish("polite")
		r.pass(2 * time.Minute)
		require.Equal(r, 14*time.Second, time.Duration(cancelled.Load()))
	})
}

// What is lost cannot be taken back for its timeout any more.
func TestLostIsNotExpired(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		taken := make(chan *Hold, 1)
		s := r.sub(Config{Mode: Manual}, func(_ context.Context, h *Hold) error { taken <- h; return nil })
		r.publish("1")
		h := <-taken
		synctest.Wait()
		s.desk.mu.Lock()
		l, ok := s.desk.lose(h)
		s.desk.mu.Unlock()
		require.True(r, ok)
		require.False(r, s.desk.expire(h))
		s.afterLoss(l, nil)
	})
}
