package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A retry that waits in the member starts when it is due.
func TestRetryInPlaceIsStartedWhenDue(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		var runs []time.Duration
		r.sub(Config{Timeout: time.Minute}, func(context.Context, *Run) error {
			runs = append(runs, r.at())
			if len(runs) < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		r.publish("1")
		r.pass(5 * time.Second)
		require.Equal(r, []time.Duration{0, time.Second, 2 * time.Second}, runs)
	})
}

// Each run after a wait in the member has its own timeout.
func TestRetryInPlaceHasItsOwnTimeout(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		var ended []time.Duration
		r.sub(Config{Timeout: 7 * time.Second}, func(ctx context.Context, h *Run) error {
			if h.Attempt() == 3 {
				require.NoError(r, ctx.Err())
				return nil
			}
			<-ctx.Done()
			ended = append(ended, r.at())
			return ctx.Err()
		})
		r.publish("1")
		r.pass(10 * time.Minute)
		require.Equal(r, []time.Duration{7 * time.Second, 15 * time.Second}, ended)
	})
}

// Nack returns as soon as the retry waits in the member. The drain counts the event once.
func TestNackInPlace(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		taken := make(chan *Run, 8)
		s := r.sub(Config{Mode: Manual, Timeout: time.Minute}, func(_ context.Context, h *Run) error {
			taken <- h
			return nil
		})
		r.publish("1")
		first := <-taken
		require.NoError(r, first.Nack(r.Context(), errors.New("not yet")))
		require.Zero(r, r.at())
		require.ErrorIs(r, first.Ack(r.Context()), ErrSettled)
		second := <-taken
		require.Equal(r, 2, second.Attempt())
		require.NoError(r, second.Ack(r.Context()))
		_, err := s.Drain(r.Context())
		require.NoError(r, err)
		require.Less(r, r.at(), 2*time.Second)
		require.Equal(r, int64(1), s.Counts().Acknowledged)
	})
}

// A run in manual mode times out while its handler is stuck. The retry is a separate run.
func TestTimeoutInPlaceOfStuckHandler(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		var runs atomic.Int32
		s := r.sub(Config{Mode: Manual, Concurrency: 2, Timeout: 5 * time.Second}, func(ctx context.Context, h *Run) error {
			if runs.Add(1) == 1 {
				time.Sleep(20 * time.Second) // ignores its context
				return ctx.Err()
			}
			require.NoError(r, ctx.Err())
			return h.Ack(context.WithoutCancel(ctx))
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Equal(r, int32(2), runs.Load())
		require.Equal(r, int64(1), s.Counts().Acknowledged)
		require.Equal(r, int64(1), s.Counts().Retried)
	})
}

// A retry that waits in the member during a slow Extend call keeps its lease.
func TestRetryInPlaceKeepsItsLease(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		r.wire.answerAfter("extend", 3*time.Second)
		s := r.sub(Config{Policy: policy(1000, func(*Hold, error) time.Duration { return time.Second })}, func(_ context.Context, h *Run) error {
			require.Equal(r, 1, h.Delivery().Attempt, "receipts")
			return errors.New("not yet")
		})
		r.publish("1")
		r.pass(5 * time.Minute)
		require.Zero(r, s.Counts().LeasesLost)
		require.Equal(r, int64(1), s.Counts().Received)
	})
}
