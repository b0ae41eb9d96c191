package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// publishMany stores n messages of key in one call. Their IDs begin with key.
func (r *rig) publishMany(key string, n int) {
	r.Helper()
	msgs := make([]*backend.Message, n)
	for i := range msgs {
		msgs[i] = &backend.Message{Topic: "t", ID: key + "/" + strconv.Itoa(i), Key: key}
	}
	require.NoError(r, r.Publish(r.Context(), msgs))
}

// A broker that freezes for longer than a retry waits does not break the order of a key.
func TestRetryKeepsKeyOrderThroughAFreeze(t *testing.T) {
	for _, refund := range []bool{true, false} {
		t.Run(fmt.Sprintf("refund=%v", refund), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.noRefund = !refund
				r.limits = r.wire.Limits()
				var ran []string
				r.sub(Config{Order: ByKey, Lease: 30 * time.Second}, func(_ context.Context, h *Run) error {
					ran = append(ran, h.Delivery().ID)
					if len(ran) == 1 {
						return RetryAfter(errors.New("no"), 100*time.Millisecond)
					}
					return nil
				})
				r.publishKeyed("k", "A")
				r.pass(10 * time.Millisecond)
				for _, verb := range []string{"receive", "ack", "delay", "extend"} {
					r.wire.delay(verb, 4*time.Second)
				}
				r.publishKeyed("k", "B")
				r.pass(4 * time.Second)
				for _, verb := range []string{"receive", "ack", "delay", "extend"} {
					r.wire.delay(verb, 0)
				}
				r.publishKeyed("k", "C")
				r.pass(time.Minute)
				require.Equal(r, []string{"A", "A", "B", "C"}, ran)
			})
		})
	}
}

// Events with other keys don't wait for the events behind a failing one, however many there are.
// The events behind it are handled soon after it succeeds.
func TestOtherKeysMoveBesideAHotKey(t *testing.T) {
	hot := 10_000
	if os.Getenv("EVENTBUS_NIGHTLY") != "" {
		hot = 50_000
	}
	inBubble(t, Options{}, func(r *rig) {
		var mu sync.Mutex
		var slowest time.Duration
		others, done, next := 0, 0, 0
		sent := map[string]time.Time{}
		var healed atomic.Bool
		r.sub(Config{Order: ByKey, Concurrency: 4, Policy: policy(0, func(*Hold, error) time.Duration { return time.Second })}, func(_ context.Context, h *Run) error {
			mu.Lock()
			defer mu.Unlock()
			d := h.Delivery()
			if d.Key != "hot" {
				others++
				slowest = max(slowest, time.Since(sent[d.ID]))
				return nil
			}
			if !healed.Load() {
				require.Equal(r, "hot/0", d.ID)
				return errors.New("no")
			}
			require.Equal(r, "hot/"+strconv.Itoa(next), d.ID)
			next++
			done++
			return nil
		})
		r.publishMany("hot", hot)
		for i := range 100 {
			id := fmt.Sprintf("k%d/0", i)
			mu.Lock()
			sent[id] = time.Now()
			mu.Unlock()
			r.publishMany(fmt.Sprintf("k%d", i), 1)
			r.pass(50 * time.Millisecond)
		}
		require.Equal(r, 100, others)
		require.Less(r, slowest, time.Second)
		healed.Store(true)
		r.pass(time.Duration(hot/2000) * time.Second)
		require.Equal(r, hot, done)
	})
}

// If half of all keys fail, the others don't wait for them.
func TestOtherKeysMoveBesideManyFailingKeys(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var handled atomic.Int64
		r.sub(Config{Order: ByKey, Concurrency: 16, Policy: policy(0, func(*Hold, error) time.Duration { return time.Second })}, func(_ context.Context, h *Run) error {
			if n, _ := strconv.Atoi(h.Delivery().Key); n%2 == 0 {
				return errors.New("no")
			}
			handled.Add(1)
			return nil
		})
		var msgs []*backend.Message
		for i := range 10_000 {
			msgs = append(msgs, &backend.Message{Topic: "t", ID: strconv.Itoa(i), Key: strconv.Itoa(i)})
		}
		require.NoError(r, r.Publish(r.Context(), msgs))
		r.pass(time.Second)
		require.EqualValues(r, 5000, handled.Load())
		require.NoError(r, r.Publish(r.Context(), msgs))
		r.pass(time.Second)
		require.EqualValues(r, 10_000, handled.Load())
	})
}

// A second member doesn't make single failures expensive: nothing waits for a retry that was
// delivered to the other member.
func TestSecondMemberMakesRetriesNoSlower(t *testing.T) {
	for _, refund := range []bool{true, false} {
		t.Run(fmt.Sprintf("refund=%v", refund), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.noRefund = !refund
				r.limits = r.wire.Limits()
				var mu sync.Mutex
				sent, runs := map[string]time.Time{}, map[string]int{}
				var late []time.Duration
				for range 2 {
					r.sub(Config{Order: ByKey, Concurrency: 4}, func(_ context.Context, h *Run) error {
						time.Sleep(time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						id := h.Delivery().ID
						if runs[id]++; runs[id] == 1 {
							late = append(late, time.Since(sent[id]))
						}
						if n, _ := strconv.Atoi(id); n%50 == 0 && runs[id] == 1 {
							return RetryAfter(errors.New("no"), 100*time.Millisecond)
						}
						return nil
					})
				}
				const n = 4500
				for i := range n {
					mu.Lock()
					sent[strconv.Itoa(i)] = time.Now()
					mu.Unlock()
					r.publishKeyed(strconv.Itoa(i*7%40), strconv.Itoa(i))
					r.pass(time.Second / 450)
				}
				r.pass(10 * time.Second)
				require.Len(r, late, n)
				slices.Sort(late)
				require.Less(r, late[n*999/1000], 500*time.Millisecond)
			})
		})
	}
}

// An event that a member has prefetched but can't start is redelivered to an idle member.
func TestReadAheadGoesToAnIdleMember(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var slow atomic.Bool
		var done []time.Duration
		var mu sync.Mutex
		join := func() {
			r.sub(Config{}, func(context.Context, *Run) error {
				if slow.Load() {
					time.Sleep(5 * time.Second)
				}
				mu.Lock()
				defer mu.Unlock()
				done = append(done, r.at())
				return nil
			})
		}
		join()
		r.publishMany("", 100) // quick ones: the member reads ahead
		r.pass(time.Second)
		slow.Store(true)
		begun := r.at()
		r.publishMany("", 4)
		r.pass(time.Millisecond)
		join()
		r.pass(time.Minute)
		require.Len(r, done, 104)
		require.LessOrEqual(r, done[103]-begun, 13*time.Second, "two members share four runs of 5 s: %v", done[98:])
	})
}

// If a backend counts each receipt, no event is dead-lettered because of its receipts alone.
func TestSnoozedIsNeverPutAsideUnrun(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		runs := 0
		handle := func(context.Context, *Run) error {
			if runs++; runs <= 60 {
				return Snooze(time.Second)
			}
			return nil
		}
		r.publish("1")
		for range 6 { // a member's memory of snoozes is lost with it
			s := r.sub(Config{DeadLetter: "dead", Policy: policy(12, func(*Hold, error) time.Duration { return time.Second })}, handle)
			r.pass(11 * time.Second)
			_, err := s.Drain(r.Context())
			require.NoError(r, err)
			require.Zero(r, s.Counts().DeadLettered)
		}
		require.Greater(r, runs, 60)
	})
}

// If a backend counts each receipt, events that queue behind a failing one take no more than their
// share of the slots. park in package ledger sets that share.
func TestHotKeyTakesItsShareOfSlots(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		others := 0
		r.sub(Config{Order: ByKey, MaxInFlight: 16}, func(_ context.Context, h *Run) error {
			if h.Delivery().Key == "hot" {
				return RetryAfter(errors.New("no"), 10*time.Second)
			}
			others++
			return nil
		})
		r.publishMany("hot", 100)
		r.pass(time.Second)
		r.publishMany("other", 100)
		r.pass(5 * time.Second)
		require.Equal(r, 100, others)
	})
}

// An acknowledgement that fails again and again doesn't delay others.
func TestFailingAckHoldsUpNoOther(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.wire.refuses("1")
		r.publish("1")
		r.pass(10 * time.Second) // by now the pause between two tries is long
		r.publish("2", "3")
		r.pass(100 * time.Millisecond)
		require.EqualValues(r, 2, s.Counts().Acknowledged)
		r.wire.refuses("")
		r.pass(10 * time.Second)
		require.EqualValues(r, 3, s.Counts().Acknowledged)
	})
}

// A panic of the program's Retry.Delay, or of a driver, becomes an error.
func TestPanicsAreContained(t *testing.T) {
	for _, where := range []string{"backoff", "receive", "ack", "delay", "extend"} {
		t.Run(where, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.panics(where, where != "backoff")
				s := r.sub(Config{Lease: 9 * time.Second, Policy: policy(0, func(*Hold, error) time.Duration {
					if where == "backoff" {
						panic("a bug")
					}
					return time.Second
				})}, func(_ context.Context, h *Run) error {
					time.Sleep(4 * time.Second)
					if h.Attempt() == 1 {
						return errors.New("no")
					}
					return nil
				})
				r.publish("1")
				r.pass(10 * time.Second)
				r.wire.panics(where, false)
				r.pass(2 * time.Minute)
				require.EqualValues(r, 1, s.Counts().Acknowledged)
				stacks := 0
				for _, f := range heard[observer.Failed](r) {
					if p, ok := errors.AsType[*observer.PanicError](f.Err); ok {
						require.NotEmpty(r, p.Stack)
						stacks++
					}
				}
				require.Positive(r, stacks, "the observer is told of the panic, with its stack")
			})
		})
	}
}

// If a hook ends its goroutine, a new worker replaces the one that was lost.
func TestGoexitInAHookCostsNoWorker(t *testing.T) {
	o := observer.Observer{Handled: func(observer.Handled) { runtime.Goexit() }}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		var runs atomic.Int64
		r.sub(Config{}, func(context.Context, *Run) error { runs.Add(1); return nil })
		r.publish("1", "2", "3")
		r.pass(time.Minute)
		require.GreaterOrEqual(r, runs.Load(), int64(3))
	})
}

// A dead letter is stored with Once only if the backend remembers IDs.
func TestDeadLetterIsOnceWhereThatIsOffered(t *testing.T) {
	for _, window := range []time.Duration{0, time.Minute} {
		t.Run(window.String(), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.limits.OnceWindow = window
				r.sub(Config{DeadLetter: "dead"}, func(context.Context, *Run) error { return Permanent(errors.New("never")) })
				r.publish("1")
				r.pass(time.Second)
				require.Equal(r, window > 0, r.wire.once.Load())
			})
		})
	}
}

// Nack reports that the lease was lost.
func TestNackOfALostLease(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		taken := make(chan *Run, 1)
		r.sub(Config{Mode: Manual}, func(_ context.Context, h *Run) error { taken <- h; return nil })
		r.publish("1")
		h := <-taken
		r.wire.fail("delay", backend.ErrLeaseLost)
		require.ErrorIs(r, h.Nack(r.Context(), nil), backend.ErrLeaseLost)
	})
}

// If a drain runs out of time while the broker is frozen, it ends soon afterwards and counts the
// events that it leaves behind.
func TestDrainEndsWhileTheBrokerIsFrozen(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{Concurrency: 2}, func(context.Context, *Run) error { return nil })
		r.wire.hang.Store(true)
		r.publish("1", "2")
		r.pass(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		left, err := s.Drain(ctx)
		require.NoError(r, err)
		require.LessOrEqual(r, time.Since(begun), 11500*time.Millisecond)
		require.Equal(r, 2, left.Unsettled)
		r.wire.hang.Store(false)
	})
}

// A group that was deleted continues after the last event it received, and the loss is reported.
func TestDeletedGroupGoesOnWhereItWas(t *testing.T) {
	var notices []observer.Noticed
	o := observer.Observer{Noticed: func(n observer.Noticed) { notices = append(notices, n) }}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		var ran []string
		r.sub(Config{Start: backend.StartEarliest}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			return nil
		})
		keeper, err := r.wire.Attach(r.Context(), backend.Config{Topic: "t", Group: "other", Lease: time.Second})
		require.NoError(r, err) // without a group the topic would keep nothing
		r.publish("1", "2", "3")
		r.pass(time.Second)
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(r, admin.DeleteGroup(r.Context(), "t", "g"))
		begun := len(r.wire.of("attach"))
		r.pass(time.Millisecond)
		require.Greater(r, len(r.wire.of("attach")), begun-1, "at once")
		r.publish("4")
		r.pass(time.Minute)
		require.Equal(r, []string{"1", "2", "3", "4"}, ran)
		require.Len(r, notices, 1)
		require.Contains(r, notices[0].Text, "may be missing")
		require.NoError(r, keeper.Close())
	})
}
