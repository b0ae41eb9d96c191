package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// letters returns the messages stored in the dead-letter topic.
func (r *rig) letters() []backend.Message {
	r.Helper()
	ms, err := backend.Read(r.Context(), r.wire.Backend, "t.dlq", "", 1000)
	if !errors.Is(err, backend.ErrGone) {
		require.NoError(r, err)
	}
	return ms
}

// While the dead-letter topic refuses messages, the verdict is final: no run is repeated, later
// events with the key are handled, and State and Ready name the topic. Later each dead letter is
// stored once.
func TestVerdictIsFinalWhileDeadLettersAreRefused(t *testing.T) {
	for n, lasts := range map[int]time.Duration{2: time.Hour, 500: 5 * time.Minute} {
		inBubble(t, Options{}, func(r *rig) {
			r.wire.refuseTopic("t.dlq", backend.ErrFull)
			runs := map[string]int{}
			s := r.sub(Config{DeadLetter: "t.dlq", MaxInFlight: 2 * n, Policy: policy(1, func(*Hold, error) time.Duration { return 0 })}, func(_ context.Context, h *Run) error {
				runs[h.Delivery().ID]++
				if h.Delivery().Payload != nil {
					return errDown
				}
				return nil
			})
			for i := range n {
				bad := &backend.Message{Topic: "t", ID: fmt.Sprint("bad", i), Key: fmt.Sprint(i), Payload: []byte("bad")}
				require.NoError(r, r.Publish(r.Context(), []*backend.Message{bad, {Topic: "t", ID: fmt.Sprint("good", i), Key: fmt.Sprint(i)}}))
			}
			r.pass(lasts)
			require.Len(r, runs, 2*n)
			for id, times := range runs {
				require.Equal(r, 1, times, id)
			}
			state, err := s.State()
			require.Equal(r, observer.Degraded, state)
			require.ErrorContains(r, err, "t.dlq")
			require.ErrorIs(r, err, backend.ErrFull)
			require.ErrorContains(r, r.Ready(r.Context()), "t/g is degraded: dead letters cannot be stored in t.dlq")
			require.Less(r, len(r.wire.of("publish")), 2*n+12*int(lasts.Seconds()), "about one call a second, and some")

			r.wire.refuseTopic("", nil)
			r.pass(5 * time.Second)
			require.Len(r, r.letters(), n)
			require.NoError(r, r.Ready(r.Context()))
			require.Equal(r, Counts{Received: int64(2 * n), Acknowledged: int64(2 * n), Failures: int64(n), DeadLettered: int64(n)}, s.Counts())
		})
	}
}

// A drain doesn't wait for a dead-letter topic that refuses messages: the event is given back.
func TestDrainLeavesRefusedDeadLetters(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.refuseTopic("t.dlq", backend.ErrDenied)
		c := Config{DeadLetter: "t.dlq", Policy: policy(1, func(*Hold, error) time.Duration { return 0 })}
		s := r.sub(c, func(context.Context, *Run) error { return errDown })
		r.publish("1")
		r.pass(time.Minute)
		began := time.Now()
		left, err := s.Drain(r.Context())
		require.NoError(r, err)
		require.Zero(r, left.Unsettled)
		require.Less(r, time.Since(began), 5*time.Second)
		r.wire.refuseTopic("", nil)
		r.sub(c, func(context.Context, *Run) error { return errDown })
		r.pass(time.Minute)
		require.Len(r, r.letters(), 1)
	})
}

// The dead letter of an event that was acknowledged before its run is stored when the topic accepts
// it, as long as that is within the time of a lease. Otherwise the event is discarded, and so it is
// during a drain. No other event waits for it.
func TestDeadLettersAfterTheAcknowledgement(t *testing.T) {
	buries := policy(3, func(*Hold, error) time.Duration { return 0 })
	buries.BuryReceived = true
	for _, refused := range []time.Duration{0, 20 * time.Second, time.Hour} {
		inBubble(t, Options{}, func(r *rig) {
			if refused > 0 {
				r.wire.refuseTopic("t.dlq", backend.ErrFull)
			}
			s := r.sub(Config{Mode: OnReceive, DeadLetter: "t.dlq", Lease: 30 * time.Second, Policy: buries}, func(_ context.Context, h *Run) error {
				time.Sleep(time.Minute) // longer than the lease
				if h.Delivery().ID == "2" {
					return nil
				}
				return errDown
			})
			r.publish("1", "2", "3")
			r.pass(time.Minute + refused)
			r.wire.refuseTopic("", nil)
			r.pass(10 * time.Minute)
			want := Counts{Received: 3, Acknowledged: 3, Failures: 2, DeadLettered: 2}
			if refused > time.Minute {
				want.DeadLettered, want.Discarded = 0, 2
			}
			require.Equal(r, want, s.Counts())
			require.Len(r, r.letters(), int(want.DeadLettered))
			require.NoError(r, r.Ready(r.Context()))
		})
	}
	inBubble(t, Options{}, func(r *rig) {
		r.wire.refuseTopic("t.dlq", backend.ErrFull)
		s := r.sub(Config{Mode: OnReceive, DeadLetter: "t.dlq", Policy: buries}, func(context.Context, *Run) error { return errDown })
		r.publish("1")
		r.pass(time.Second)
		began := time.Now()
		left, err := s.Drain(r.Context())
		require.NoError(r, err)
		require.Zero(r, left.Unsettled)
		require.Less(r, time.Since(began), 5*time.Second)
		require.Equal(r, Counts{Received: 1, Acknowledged: 1, Failures: 1, Discarded: 1}, s.Counts())
	})
}

// An event that fails permanently a second time gets a second dead letter, even if the backend
// remembers the ID of the first one.
func TestEachFailureHasItsDeadLetter(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{DeadLetter: "t.dlq"}, func(context.Context, *Run) error { return Permanent(errDown) })
		r.keepTopic()
		r.publish("1")
		r.pass(time.Second)
		require.Len(r, r.letters(), 1)
		admin, _ := backend.As[backend.Admin](r.wire.Backend)
		require.NoError(r, admin.ResetGroup(r.Context(), "t", "g", backend.StartEarliest))
		r.pass(time.Second)
		require.Equal(r, int64(2), s.Counts().DeadLettered)
		require.Len(r, r.letters(), 2)
	})
}

// A drain doesn't wait for a dead-letter topic that can't be reached.
func TestDrainLeavesUnreachableDeadLetters(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.refuseTopic("t.dlq", fmt.Errorf("%w: down", backend.ErrUnavailable))
		s := r.sub(Config{DeadLetter: "t.dlq", Policy: policy(1, func(*Hold, error) time.Duration { return 0 })}, func(context.Context, *Run) error { return errDown })
		r.publish("1")
		r.pass(time.Second)
		began := time.Now()
		left, err := s.Drain(r.Context())
		require.NoError(r, err)
		require.Zero(r, left.Unsettled)
		require.Less(r, time.Since(began), 5*time.Second)
	})
}

// A function that ends its goroutine while it classifies an error doesn't keep the event.
func TestClassThatEndsItsGoroutine(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		p := policy(2, func(*Hold, error) time.Duration { return time.Second })
		p.Class = func(error) string { runtime.Goexit(); return "" }
		s := r.sub(Config{DeadLetter: "t.dlq", Policy: p}, func(context.Context, *Run) error { return errDown })
		r.publish("1", "2")
		r.pass(time.Minute)
		require.Equal(r, int64(2), s.Counts().DeadLettered)
		require.Len(r, r.letters(), 2)
	})
}
