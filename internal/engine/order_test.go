package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Events that cannot be given back are redelivered when their leases expire.
func TestFailingDelayLeavesEventsToTheirLeases(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("delay", backend.ErrUnavailable)
		ran := map[string]int{}
		s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Run) error {
			if ran[h.Delivery().ID]++; h.Delivery().ID == "1" && ran["1"] == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		r.publishKeyed("k", "1", "2")
		r.pass(2 * time.Minute)
		require.Equal(r, 2, ran["1"])
		require.EqualValues(r, 2, s.Counts().Acknowledged)
		require.NotEmpty(r, heard[observer.LeaseLost](r))
	})
}

// An event that was given back to a group that is then deleted delays no other event.
func TestGoneForgetsStubs(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		r.sub(Config{Policy: policy(3, func(*Hold, error) time.Duration { return time.Hour })}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			if h.Delivery().ID == "old" {
				return errors.New("not yet")
			}
			return nil
		})
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "old", Key: "k"}}))
		r.pass(time.Second)
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(r, admin.DeleteTopic(r.Context(), "t"))
		r.publish("free") // the event takes the position of the old one
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "new", Key: "k"}}))
		r.pass(time.Minute)
		require.Equal(r, []string{"old", "free", "new"}, ran)
	})
}

// The answer to a Delay may arrive after the group was deleted. It doesn't delay events of the new
// group.
func TestGoneForgetsADelayUnderWay(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.answerAfter("delay", 5*time.Second)
		var ran []string
		r.sub(Config{Policy: policy(3, func(*Hold, error) time.Duration { return time.Hour })}, func(_ context.Context, h *Run) error {
			if ran = append(ran, h.Delivery().ID); h.Delivery().ID == "old" {
				return errors.New("not yet")
			}
			return nil
		})
		r.publishKeyed("k", "old")
		r.pass(time.Second)
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(r, admin.DeleteTopic(r.Context(), "t"))
		r.pass(10 * time.Second)
		r.publish("free", "free")
		r.publishKeyed("k", "new")
		r.pass(time.Minute)
		require.Equal(r, []string{"old", "free", "free", "new"}, ran)
	})
}

// After ResetGroup no event waits for a retry that the group has forgotten, even if the answer to
// its Delay arrives later.
func TestResetForgetsStubs(t *testing.T) {
	for _, answer := range []time.Duration{0, 5 * time.Second} {
		inBubble(t, Options{}, func(r *rig) { resetForgets(r, answer) })
	}
}

func resetForgets(r *rig, answer time.Duration) {
	r.wire.answerAfter("delay", answer)
	var ran []string
	r.sub(Config{Policy: policy(3, func(*Hold, error) time.Duration { return time.Hour })}, func(_ context.Context, h *Run) error {
		if ran = append(ran, h.Delivery().ID); len(ran) == 2 {
			return errors.New("not yet")
		}
		return nil
	})
	r.publishKeyed("k", "1", "2", "3")
	r.pass(time.Second)
	admin, _ := backend.As[backend.Admin](r.wire)
	require.NoError(r, admin.ResetGroup(r.Context(), "t", "g", backend.StartEarliest))
	r.pass(time.Minute)
	require.Equal(r, []string{"1", "2", "2", "3"}, ran)
}

// If a backend counts each receipt, a retry that waits in this member may have to step back because
// earlier events with its key have been redelivered. It keeps its attempt and its delay.
func TestRestingRetryStepsBack(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		first := r.sub(Config{Concurrency: 4}, func(ctx context.Context, _ *Run) error {
			<-ctx.Done()
			return ctx.Err()
		})
		r.publishKeyed("k", "1", "2", "3", "4")
		r.pass(time.Second)
		first.Pause()
		var ran []string
		var retried time.Duration
		r.sub(Config{MaxInFlight: 4, Concurrency: 4}, func(_ context.Context, h *Run) error {
			id := h.Delivery().ID
			switch ran = append(ran, id); {
			case id == "5" && len(ran) == 1:
				return RetryAfter(errors.New("not yet"), time.Hour)
			case id == "2" && len(ran) == 2:
				return RetryAfter(errors.New("not yet"), time.Minute)
			case id == "5":
				require.Equal(r, 2, h.Attempt())
				retried = r.at()
			}
			return nil
		})
		r.publishKeyed("k", "5")
		r.pass(time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, _ = first.Drain(ctx)
		r.pass(2 * time.Hour)
		require.Equal(r, []string{"5", "2", "1", "2", "3", "4", "5"}, ran)
		require.GreaterOrEqual(r, retried, time.Hour)
	})
}

// The next event of a key doesn't wait for the confirmation of the previous one's acknowledgement.
func TestNextOfAKeyRunsBeforeTheAck(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.delay("ack", 5*time.Second)
		var ran []time.Duration
		r.sub(Config{}, func(context.Context, *Run) error { ran = append(ran, r.at()); return nil })
		msgs := []*backend.Message{{Topic: "t", ID: "1", Key: "k"}, {Topic: "t", ID: "2", Key: "k"}}
		require.NoError(r, r.Publish(r.Context(), msgs))
		r.pass(time.Minute)
		require.Len(r, ran, 2)
		require.Equal(r, ran[0], ran[1])
	})
}

// A key that the program has released stays released, even though the dead letter of a later event
// was being stored at the time.
func TestReleasedKeyStaysReleased(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		s := r.sub(Config{FailAll: true, DeadLetter: "dead"}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			if h.Delivery().ID == "1" {
				return Permanent(errDown)
			}
			return nil
		})
		r.publishKeyed("k", "1")
		r.pass(time.Second)
		r.wire.delay("publish", 20*time.Millisecond)
		r.publishKeyed("k", "2")
		r.pass(10 * time.Millisecond)
		require.True(r, s.ReleaseKey("k"))
		r.pass(time.Second)
		r.publishKeyed("k", "3")
		r.pass(time.Second)
		require.Empty(r, s.FailedKeys())
		require.Equal(r, []string{"1", "3"}, ran)
	})
}

// A Delay that is refused because the lease is lost doesn't delay later events of the key.
func TestRefusedDelayHoldsUpNoKey(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		r.sub(Config{}, func(_ context.Context, h *Run) error {
			if ran = append(ran, h.Delivery().ID); len(ran) == 1 {
				return RetryAfter(errDown, 10*time.Minute)
			}
			return nil
		})
		r.wire.fail("delay", backend.ErrLeaseLost)
		r.publishKeyed("k", "1")
		r.pass(time.Second)
		r.wire.fail("delay", nil)
		r.pass(40 * time.Second)
		r.publishKeyed("k", "2")
		r.pass(10 * time.Second)
		require.Equal(r, []string{"1", "1", "2"}, ran)
	})
}

// An event that can't be read never runs, even if its dead letter can't be stored and the backend
// can't delay it.
func TestUnreadableEventsNeverRun(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noDelay = true
		ran := 0
		s := r.sub(Config{DeadLetter: "dead", MaxReceive: 10, Timeout: time.Minute}, func(context.Context, *Run) error {
			ran++
			return nil
		})
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "1", Payload: make([]byte, 100)}}))
		r.wire.fail("publish", backend.ErrRefused)
		r.pass(time.Minute)
		r.wire.fail("publish", nil)
		r.pass(2 * time.Minute)
		require.Zero(r, ran)
		require.Equal(r, int64(1), s.Counts().DeadLettered)
	})
}

// A lost lease is counted once, even if the acknowledgement of the event is refused later.
func TestLostLeaseIsCountedOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		s := r.sub(Config{}, func(context.Context, *Run) error { time.Sleep(31 * time.Second); return nil })
		r.wire.fail("ack", backend.ErrLeaseLost)
		r.publish("1")
		r.pass(32 * time.Second)
		r.wire.fail("extend", nil)
		r.wire.fail("ack", nil)
		require.Equal(r, int64(1), s.Counts().LeasesLost)
	})
}

// Events behind a failing one are never given back for longer than the backend allows. The observer
// is informed of each retry that comes earlier than requested.
func TestDelaysAreWithinTheLimit(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.longest = 5 * time.Second
		r.limits = r.wire.Limits()
		failures := 3
		var ran []string
		r.sub(Config{Policy: policy(9, func(*Hold, error) time.Duration { return time.Hour })}, func(_ context.Context, h *Run) error {
			if failures--; failures >= 0 {
				return errors.New("not yet")
			}
			ran = append(ran, h.Delivery().ID)
			return nil
		})
		r.publishKeyed("k", "0")
		r.pass(10 * time.Millisecond)
		r.publishKeyed("k", numbered(200)[1:]...)
		r.pass(time.Minute)
		require.Equal(r, numbered(200), ran)
		told := heard[observer.Failed](r)
		require.Len(r, told, 3)
		for _, f := range told {
			require.Equal(r, observer.Delay, f.Scope)
			require.ErrorContains(r, f.Err, "redelivered after 5s, not 1h0m0s")
		}
	})
}
