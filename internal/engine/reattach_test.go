package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A recreated group starts before the lowest event that is unsettled in this member: one that is
// waiting for its retry, and one that is running.
func TestLostGroupBringsUnsettledEventsAgain(t *testing.T) {
	for _, n := range []int{2, 500} {
		inBubble(t, Options{}, func(r *rig) {
			var mu sync.Mutex
			runs, fails := map[string]int{}, map[string]bool{"0": true, fmt.Sprint(n / 2): true}
			hold := make(chan struct{})
			r.sub(Config{Concurrency: 2, Policy: policy(9, func(*Hold, error) time.Duration { return time.Hour })}, func(ctx context.Context, h *Run) error {
				id := h.Delivery().ID
				mu.Lock()
				runs[id]++
				again := runs[id] > 1
				mu.Unlock()
				if again {
					return nil
				}
				if id == fmt.Sprint(n) {
					select {
					case <-hold:
					case <-ctx.Done():
					}
				}
				if fails[id] {
					return errDown
				}
				return nil
			})
			r.keepTopic()
			r.publish("before")
			r.pass(time.Second)
			var ids []string
			for i := range n + 1 {
				ids = append(ids, fmt.Sprint(i))
			}
			r.publish(ids...)
			r.pass(time.Second)
			admin, _ := backend.As[backend.Admin](r.wire.Backend)
			require.NoError(r, admin.DeleteGroup(r.Context(), "t", "g"))
			r.pass(10 * time.Second)
			require.Equal(r, 1, runs["before"])
			for id := range fails {
				require.Equal(r, 2, runs[id], id)
			}
			require.Equal(r, 2, runs[fmt.Sprint(n)])
			close(hold)
		})
	}
}

// An unsettled event is redelivered even if the group is lost twice in a row, or if its lease was
// lost before the group.
func TestLostTwice(t *testing.T) {
	for _, name := range []string{"group twice", "lease, then group"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var down atomic.Bool
				var runs atomic.Int64
				s := r.sub(Config{Lease: time.Second}, func(ctx context.Context, h *Run) error {
					if h.Delivery().ID != "0" {
						return nil
					}
					if runs.Add(1); down.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				r.keepTopic()
				admin, _ := backend.As[backend.Admin](r.wire.Backend)
				down.Store(true)
				r.publish("0", "1")
				r.pass(100 * time.Millisecond)
				if name == "group twice" {
					r.wire.delay("receive", 300*time.Millisecond)
					require.NoError(r, admin.DeleteGroup(r.Context(), "t", "g"))
					r.pass(time.Millisecond)
					down.Store(false)
					for admin.DeleteGroup(r.Context(), "t", "g") != nil { // until the member has recreated it
						r.pass(time.Millisecond)
					}
				} else {
					for _, verb := range []string{"receive", "extend", "ack", "delay"} {
						r.wire.fail(verb, errDown)
					}
					r.pass(10 * time.Second)
					require.NoError(r, admin.DeleteGroup(r.Context(), "t", "g"))
					down.Store(false)
					for _, verb := range []string{"receive", "extend", "ack", "delay"} {
						r.wire.fail(verb, nil)
					}
				}
				r.pass(10 * time.Second)
				require.GreaterOrEqual(r, runs.Load(), int64(2))
				require.GreaterOrEqual(r, s.Counts().Acknowledged, int64(2))
			})
		})
	}
}

// A group that was reset and then lost starts where the replay was.
func TestLostGroupAfterAReset(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		runs := map[string]int{}
		slow := false
		r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.keepTopic()
		r.publish(numbered(50)...)
		r.pass(time.Second)
		for _, s := range r.Subscriptions() {
			_, err := s.Drain(r.Context())
			require.NoError(r, err)
		}
		s := r.sub(Config{}, func(ctx context.Context, h *Run) error {
			runs[h.Delivery().ID]++
			if slow {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			return nil
		})
		r.publish("last")
		r.pass(time.Second)
		slow = true
		admin, _ := backend.As[backend.Admin](r.wire.Backend)
		require.NoError(r, admin.ResetGroup(r.Context(), "t", "g", backend.StartEarliest))
		r.pass(10 * time.Second)
		slow = false
		require.NoError(r, admin.DeleteGroup(r.Context(), "t", "g"))
		r.pass(time.Minute)
		_ = s
		require.Len(r, runs, 51, "the replay goes on")
	})
}

// A handler that asks for no delay gets 10 ms, and up to 50 ms for repeats of one event.
func TestRedeliveryHasAFloor(t *testing.T) {
	for name, err := range map[string]error{"snooze": Snooze(0), "past": Snooze(-time.Hour), "retry after": RetryAfter(errDown, -1), "retry": errDown} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var at []time.Duration
				r.sub(Config{Policy: policy(0, func(*Hold, error) time.Duration { return 0 })}, func(context.Context, *Run) error {
					at = append(at, r.at())
					return err
				})
				r.publish("1")
				r.pass(10 * time.Second)
				require.Less(r, len(at), 250)
				require.Greater(r, len(at), 10)
				for i, least := range []time.Duration{10, 20, 30, 40, 50, 50, 50} {
					require.GreaterOrEqual(r, at[i+1]-at[i], least*time.Millisecond)
				}
			})
		})
	}
}
