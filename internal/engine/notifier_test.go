package engine

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

// A slow hook doesn't delay timeouts.
func TestSlowStuckHookDelaysNothing(t *testing.T) {
	slow := observer.Observer{Stuck: func(observer.Stuck) { time.Sleep(time.Minute) }}
	inBubble(t, Options{Observer: slow}, func(r *rig) {
		var cancelled atomic.Int64
		r.sub(Config{Concurrency: 2, Timeout: 5 * time.Second}, func(ctx context.Context, h *Run) error {
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

// The time that an observer's hook takes between two runs counts for neither of them.
func TestSlowHandledHookTakesNoRunsTime(t *testing.T) {
	slow := observer.Observer{Handled: func(observer.Handled) { time.Sleep(2 * time.Second) }}
	inBubble(t, Options{Observer: slow}, func(r *rig) {
		var left []time.Duration
		r.sub(Config{Timeout: 3 * time.Second}, func(ctx context.Context, _ *Run) error {
			deadline, ok := ctx.Deadline()
			require.True(r, ok)
			left = append(left, time.Until(deadline))
			return nil
		})
		r.publish("1", "2", "3")
		r.pass(time.Minute)
		require.Equal(r, []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}, left)
	})
}

// A timeout that is practically endless has a deadline far in the future.
func TestEndlessTimeout(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		done := make(chan time.Duration, 1)
		r.sub(Config{Timeout: math.MaxInt64}, func(ctx context.Context, _ *Run) error {
			deadline, _ := ctx.Deadline()
			done <- time.Until(deadline)
			return ctx.Err()
		})
		r.publish("1")
		require.Greater(r, <-done, 200*365*24*time.Hour)
	})
}
