package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// With LeaveTimeouts the lease of a run that timed out is no longer extended, so another member
// gets the event even if the handler never returns.
func TestLeftTimeoutsReachAnotherMember(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		forever := make(chan struct{})
		c := Config{Lease: 5 * time.Second, Timeout: time.Second}
		c.Policy = policy(3, func(*Hold, error) time.Duration { return time.Second })
		c.Policy.LeaveTimeouts = true
		r.sub(c, func(context.Context, *Run) error { <-forever; return nil })
		r.publish("1")
		r.pass(100 * time.Millisecond)
		var second time.Duration
		r.sub(c, func(context.Context, *Run) error { second = r.at(); return nil })
		r.pass(time.Minute)
		require.NotZero(r, second)
		require.Less(r, second, 10*time.Second)
		close(forever)
	})
}

// An acknowledgement that is confirmed after the lease ends the other deliveries of its event in
// this member, so the event runs once. In one row, the other delivery is waiting behind another
// event; in the other row, it is still on its way.
func TestConfirmedAckDropsOtherDeliveries(t *testing.T) {
	for name, answer := range map[string]time.Duration{"waiting": 0, "under way": 700 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				runs := map[string]int{}
				s := r.sub(Config{Lease: time.Second}, func(_ context.Context, h *Run) error {
					id := h.Delivery().ID
					if runs[id]++; id == "2" {
						time.Sleep(1700 * time.Millisecond)
						return nil
					}
					for _, verb := range []string{"ack", "extend"} {
						r.wire.delay(verb, 1500*time.Millisecond)
					}
					r.wire.answerAfter("receive", answer)
					return nil
				})
				r.publish("1")
				if answer == 0 {
					r.publish("2")
				}
				r.pass(1600 * time.Millisecond)
				r.wire.delay("extend", 0)
				r.pass(20 * time.Second)
				require.Equal(r, 1, runs["1"])
				require.GreaterOrEqual(r, s.Counts().Acknowledged, int64(1))
			})
		})
	}
}

// A Delay that took effect but whose answer was lost doesn't cause a lost lease.
func TestUnansweredDelayIsNoLostLease(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(_ context.Context, h *Run) error {
			if h.Attempt() == 1 {
				r.wire.mute.Store(1)
				return errDown
			}
			return nil
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Equal(r, int64(1), s.Counts().Acknowledged)
		require.Empty(r, heard[observer.LeaseLost](r))
		require.Zero(r, s.Counts().LeasesLost)
	})
}

// A member that was frozen for longer than its lease notices this even though its handler
// succeeded, because it checks its own clock.
func TestMemberThatStoodStillIsTold(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var held atomic.Pointer[Run]
		s := r.sub(Config{Mode: Manual, Lease: 30 * time.Second}, func(_ context.Context, h *Run) error { held.Store(h); return nil })
		r.publish("1")
		r.pass(time.Second)
		s.ledger.mu.Lock() // as if the process had been frozen: neither the timer nor the lease extender ran
		s.epoch = s.epoch.Add(-time.Minute)
		s.ledger.mu.Unlock()
		require.ErrorIs(r, held.Load().Ack(r.Context()), backend.ErrLeaseLost)
		require.Len(r, heard[observer.LeaseLost](r), 1)
	})
}

// An acknowledgement that the broker refuses means a lost lease, with a known outcome.
func TestRefusedAckIsALostLease(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var err error
		r.sub(Config{Mode: Manual}, func(ctx context.Context, h *Run) error {
			if h.Attempt() == 1 {
				r.wire.fail("ack", backend.ErrLeaseLost)
				err = h.Ack(ctx)
				r.wire.fail("ack", nil)
				return nil
			}
			return h.Ack(ctx)
		})
		r.publish("1")
		r.pass(time.Minute)
		require.ErrorIs(r, err, backend.ErrLeaseLost)
		require.NotErrorIs(r, err, backend.ErrUnknownOutcome)
		require.Len(r, heard[observer.LeaseLost](r), 1)
	})
}
