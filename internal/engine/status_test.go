package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Settlements that keep failing for longer than a lease show in State and Ready, with the reason.
func TestFailingSettlementsShow(t *testing.T) {
	for _, verb := range []string{"ack", "delay"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.fail(verb, fmt.Errorf("%w: no rights", backend.ErrDenied))
				s := r.sub(Config{Lease: 10 * time.Second}, func(_ context.Context, h *Run) error {
					if verb == "delay" && r.at() < 25*time.Second {
						return errDown
					}
					return nil
				})
				r.publish("1", "2")
				r.pass(9 * time.Second)
				state, err := s.State()
				require.Equal(r, observer.Running, state, err)
				r.pass(10 * time.Second)
				state, err = s.State()
				require.Equal(r, observer.Degraded, state)
				require.ErrorContains(r, err, map[string]string{"ack": "2 events cannot be settled", "delay": "left to their leases"}[verb])
				require.ErrorIs(r, r.Ready(r.Context()), backend.ErrDenied)
				r.wire.fail(verb, nil)
				r.pass(40 * time.Second)
				state, _ = s.State()
				require.Equal(r, observer.Running, state)
				require.NoError(r, r.Ready(r.Context()))
				require.Equal(r, int64(2), s.Counts().Acknowledged)
			})
		})
	}
}

// Handlers that are all stuck show in State and Ready until one of them returns.
func TestStuckHandlersShow(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		free := make(chan struct{})
		s := r.sub(Config{Concurrency: 2, Timeout: time.Second}, func(_ context.Context, h *Run) error {
			if h.Attempt() == 1 {
				<-free
			}
			return nil
		})
		r.publish("1")
		r.pass(time.Minute)
		require.NoError(r, r.Ready(r.Context()), "one handler is free")
		r.publish("2")
		r.pass(time.Minute)
		state, err := s.State()
		require.Equal(r, observer.Degraded, state)
		require.ErrorContains(r, err, "2 handlers have run")
		require.Error(r, r.Ready(r.Context()))
		close(free)
		r.pass(time.Minute)
		require.NoError(r, r.Ready(r.Context()))
	})
}

// Ready names the current failures of each subscription, in a stable order, and not the first
// failure that occurred. A draining subscription is not a failure of the bus.
func TestReadyNamesThePresent(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		free := make(chan struct{})
		s := r.sub(Config{}, func(context.Context, *Run) error { <-free; return nil })
		r.wire.fail("receive", errors.New("first"))
		r.pass(time.Minute)
		r.wire.fail("receive", errors.New("second"))
		r.pass(time.Minute)
		require.ErrorContains(r, r.Ready(r.Context()), "second")
		r.wire.fail("receive", nil)
		r.publish("1")
		r.pass(time.Minute)
		require.NoError(r, r.Ready(r.Context()))
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = s.Drain(r.Context())
		}()
		r.pass(time.Second)
		require.NoError(r, r.Ready(r.Context()))
		close(free)
		<-drained
	})
}

// A confirmed acknowledgement before a long run isn't a failing settlement.
func TestLongRunAfterARepeatedAck(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("ack", fmt.Errorf("%w: down", backend.ErrUnavailable))
		s := r.sub(Config{Mode: OnReceive, Lease: 10 * time.Second}, func(context.Context, *Run) error { time.Sleep(time.Minute); return nil })
		r.publish("1")
		r.pass(time.Second)
		r.wire.fail("ack", nil)
		r.pass(40 * time.Second)
		state, err := s.State()
		require.Equal(r, observer.Running, state, err)
		require.Equal(r, int64(1), s.Counts().Running)
	})
}

// After concurrent calls of Pause and Resume, the state is right.
func TestPauseAndResumeRaceLeavesTheStateRight(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		for range 3000 {
			var wg sync.WaitGroup
			wg.Go(s.Pause)
			wg.Go(s.Resume)
			wg.Wait()
			s.consumers.mu.Lock()
			paused := !isClosed(s.consumers.resumed)
			s.consumers.mu.Unlock()
			state, _ := s.State()
			require.Equal(r, paused, state == observer.Paused)
		}
		s.Resume()
	})
}
