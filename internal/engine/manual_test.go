package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// In manual mode the context of a run ends with settlement, even if the caller of Ack has left.
func TestManualContextEndsWithSettlement(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		taken := make(chan *Run, 1)
		r.sub(Config{Mode: Manual}, func(_ context.Context, h *Run) error { taken <- h; return nil })
		r.publish("1")
		h := <-taken
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r.wire.delay("ack", time.Second)
		require.ErrorIs(r, h.Ack(ctx), backend.ErrUnknownOutcome)
		require.NoError(r, h.Context().Err())
		r.pass(2 * time.Second)
		require.Error(r, h.Context().Err())
	})
}

// nilable is an error whose methods panic if it is nil.
type nilable struct{ err error }

func (n *nilable) Error() string { return n.err.Error() }

func (n *nilable) Unwrap() error { return n.err }

// Nack with an error whose methods panic settles the event as failed.
func TestNackWithAnErrorThatPanics(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		attempts := make(chan int, 9)
		s := r.sub(Config{Mode: Manual, Policy: policy(3, nil)}, func(ctx context.Context, h *Run) error {
			attempts <- h.Attempt()
			if h.Attempt() == 1 {
				var cause *nilable
				return h.Nack(ctx, cause)
			}
			return h.Ack(ctx)
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Len(r, attempts, 2)
		require.Equal(r, int64(1), s.Counts().Acknowledged)
	})
}

// A run that settles its event with Nack and returns the same error has failed once.
func TestNackAndAnErrorFailOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{Mode: Manual}, func(ctx context.Context, h *Run) error {
			if h.Attempt() == 1 {
				require.NoError(r, h.Nack(ctx, errDown))
				return errDown
			}
			return h.Ack(ctx)
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Equal(r, int64(1), s.Counts().Failures)
		require.Equal(r, int64(1), s.Counts().Acknowledged)
	})
}

// In manual mode the next event of a key runs when the previous one is acknowledged, even if that
// one's handler returned long before. No other event, and no read, is needed to wake a worker for
// it.
func TestManualAckStartsTheNextOfItsKey(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var runs []time.Duration
		r.sub(Config{Mode: Manual, Timeout: time.Minute}, func(_ context.Context, run *Run) error {
			runs = append(runs, r.at())
			go func() {
				time.Sleep(time.Second)
				assert.NoError(t, run.Ack(context.WithoutCancel(r.Context())))
			}()
			return nil
		})
		r.publishKeyed("k", "1", "2", "3")
		r.pass(time.Minute)
		require.Equal(r, []time.Duration{0, time.Second, 2 * time.Second}, runs)
	})
}

// With FailAll each later event of a key becomes a dead letter as soon as the previous one is
// stored.
func TestFailAllStoresOneAfterAnother(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{FailAll: true, DeadLetter: "dead", Timeout: time.Minute}, func(context.Context, *Run) error {
			return Permanent(errors.New("no"))
		})
		r.publishKeyed("k", "1", "2", "3")
		r.wire.delay("publish", time.Second)
		r.pass(5 * time.Second)
		require.EqualValues(r, 3, s.Counts().DeadLettered)
	})
}
