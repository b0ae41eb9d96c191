package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
)

// A Subscribe during a Shutdown is either refused or drained. The race detector finds mistakes.
func TestSubscribeMeetsShutdown(t *testing.T) {
	for range 300 {
		e := New(inmemory.New(inmemory.Options{}), Options{})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				s, err := e.Subscribe(t.Context(), Config{
					Topic: "t", Group: "g", Concurrency: 1, MaxInFlight: 1, Lease: time.Second,
					Limiter: limiter.MaxInFlight(1),
					Policy:  policy(0, func(*Hold, error) time.Duration { return 0 }),
					Handle:  func(context.Context, *Run) error { return nil },
				})
				if err != nil {
					require.ErrorIs(t, err, backend.ErrClosed)
					return
				}
				<-s.Done()
			})
		}
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
		both.Wait()
	}
}

// If the broker has forgotten a delivery, the bus releases it at the first refusal. The event is
// redelivered, so another acknowledgement would be pointless.
func TestForgottenByTheBroker(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var attempts []int
		r.sub(Config{Lease: 30 * time.Second}, func(_ context.Context, h *Run) error {
			attempts = append(attempts, h.Delivery().Attempt)
			return nil
		})
		r.wire.fail("ack", backend.ErrLeaseLost)
		r.publish("1")
		r.pass(10 * time.Second)
		require.Len(r, r.wire.of("ack"), 1)
		r.wire.fail("ack", nil)
		r.pass(25 * time.Second)
		require.Equal(r, []int{1, 2}, attempts)
		require.Len(r, r.wire.of("ack"), 2)
	})
}
