package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In manual mode the next event of a key runs when the one before is acknowledged, also if its
// handler has returned long before. No other event, and no read, has to wake a worker for it.
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

// With FailAll each later event of a key becomes a dead letter as soon as the one before is
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
