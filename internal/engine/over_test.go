package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// The memory of events that are handled is used again. Their contexts are not, as
// handlers may keep those.
func TestMemoryIsUsedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		holds := map[*Hold]bool{}
		var kept []context.Context
		r.sub(Config{}, func(ctx context.Context, h *Hold) error {
			holds[h] = true
			for i, old := range kept {
				require.ErrorIs(r, old.Err(), context.Canceled, "context %d during run %d", i, len(kept))
			}
			kept = append(kept, ctx)
			return nil
		})
		const n = 50
		for i := range n {
			r.publish(fmt.Sprint(i))
			r.pass(10 * time.Millisecond)
		}
		require.Len(r, kept, n)
		require.Less(r, len(holds), n)
	})
}

// What was lent is copied and let go of at once, or a member that waits, or is
// paused, would keep the payloads of its last read.
func TestWhatWasLentIsLetGo(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		handled := 0
		r.sub(Config{}, func(context.Context, *Hold) error { handled++; return nil })
		for range 10 {
			r.publish("event")
			r.pass(time.Second)
		}
		require.Equal(r, 10, handled)
		require.Zero(r, r.wire.kept.Load())
	})
}

// Who found an event where all that are held are listed may come back to it when
// it is settled: here with the news that its lease is lost. No other event has
// taken its place in memory.
func TestMemoryOfWhatWasListedIsNotUsedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		done := make(chan struct{})
		r.sub(Config{Concurrency: 2}, func(ctx context.Context, _ *Hold) error {
			select {
			case <-done:
			case <-ctx.Done():
				require.Fail(r, "another event's loss", "cause: %v", context.Cause(ctx))
			}
			return nil
		})
		for range 20 {
			calls := len(r.wire.of("extend"))
			r.wire.delay("extend", 5*time.Second)
			r.wire.fail("extend", backend.ErrLeaseLost)
			r.publish("first")
			for len(r.wire.of("extend")) == calls {
				r.pass(100 * time.Millisecond)
			}
			r.wire.delay("extend", 0)
			r.wire.fail("extend", nil)
			done <- struct{}{}
			r.pass(time.Second)
			r.publish("second")
			r.pass(5 * time.Second) // in which the answer comes
			done <- struct{}{}
			r.pass(time.Second)
		}
		require.Empty(r, heard[observer.LeaseLost](r))
	})
}
