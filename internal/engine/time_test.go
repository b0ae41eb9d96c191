package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/observer"
)

// One call each third of a lease extends the leases of all held events, running or not.
func TestExtendsAllHeldInOneCall(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.sub(Config{Concurrency: 4}, func(context.Context, *Run) error {
			time.Sleep(95 * time.Second)
			return nil
		})
		r.publish("1", "2", "3", "4")
		r.pass(100 * time.Second)
		calls := r.wire.of("extend")
		require.Len(t, calls, 9, "one at 10, 20 … 90 s")
		for i, c := range calls {
			require.Equal(t, 4, c.items)
			require.Equal(t, time.Duration(i+1)*10*time.Second, c.at.Sub(r.start))
		}
	})
}

// A lease that isn't extended is lost when it expires, and not before.
func TestLeaseIsLostWhenItHasPassed(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		var lost time.Duration
		var cause error
		var once sync.Once
		r.sub(Config{}, func(ctx context.Context, h *Run) error {
			once.Do(func() {
				<-ctx.Done()
				lost, cause = r.at(), context.Cause(ctx)
				r.wire.fail("extend", nil)
			})
			return nil
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Equal(t, 30*time.Second, lost)
		require.ErrorIs(t, cause, backend.ErrLeaseLost)
		require.Len(t, heard[observer.LeaseLost](r), 1)
	})
}

// One Extend that succeeds within a lease is enough.
func TestLeaseOutlivesFailedExtends(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		time.AfterFunc(25*time.Second, func() { r.wire.fail("extend", nil) })
		runs := 0
		r.sub(Config{}, func(ctx context.Context, _ *Run) error {
			runs++
			time.Sleep(70 * time.Second)
			return ctx.Err()
		})
		r.publish("1")
		r.pass(80 * time.Second)
		require.Equal(t, 1, runs)
		require.Empty(t, heard[observer.LeaseLost](r))
	})
}

// An acknowledgement or a Delay that fails is repeated as long as the lease lasts.
func TestSettlesWithinTheLeaseThatIsLeft(t *testing.T) {
	for _, result := range []error{nil, errDown} {
		inBubble(t, Options{}, func(r *rig) {
			for _, verb := range []string{"ack", "delay", "extend"} {
				r.wire.fail(verb, errDown)
				time.AfterFunc(9500*time.Millisecond, func() { r.wire.fail(verb, nil) })
			}
			runs := 0
			s := r.sub(Config{Lease: 10 * time.Second}, func(context.Context, *Run) error {
				if runs++; runs == 1 {
					return result
				}
				return nil
			})
			r.publish("1")
			r.pass(time.Minute)
			require.Empty(t, heard[observer.LeaseLost](r))
			require.EqualValues(t, 1, s.Counts().Acknowledged)
			require.Equal(t, result != nil, runs == 2)
		})
	}
}

// With OnReceive, the observer is informed once of a lease that expires during the acknowledgement.
func TestOnReceiveTellsALostLeaseOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		r.wire.delay("ack", 15*time.Second)
		time.AfterFunc(time.Second, func() { r.wire.delay("ack", 0) })
		s := r.sub(Config{Mode: OnReceive, Lease: 10 * time.Second}, func(context.Context, *Run) error { return nil })
		r.publish("1")
		r.pass(time.Minute)
		lost := heard[observer.LeaseLost](r)
		require.Len(t, lost, 1)
		require.False(t, lost[0].Running)
		require.EqualValues(t, 1, s.Counts().LeasesLost)
		require.EqualValues(t, 1, s.Counts().Acknowledged)
	})
}

// A run is cancelled at its timeout, to the nanosecond. Five seconds later it is reported as stuck,
// once, and its event counts as failed.
func TestTimeoutAndStuck(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var cancelled []time.Duration
		r.sub(Config{Concurrency: 2, Timeout: 7 * time.Second}, func(ctx context.Context, h *Run) error {
			began := time.Now()
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, 7*time.Second, deadline.Sub(began))
			<-ctx.Done()
			r.mu.Lock()
			cancelled = append(cancelled, time.Since(began))
			r.mu.Unlock()
			if h.Delivery().ID == "stubborn" {
				time.Sleep(20 * time.Second)
			}
			return nil
		})
		r.publish("1")
		r.pass(3 * time.Second)
		r.publish("stubborn")
		r.pass(time.Minute)
		require.Equal(t, slices.Repeat([]time.Duration{7 * time.Second}, 4), cancelled, "the stubborn event has three attempts")
		stuck := heard[observer.Stuck](r)
		require.Len(t, stuck, 3)
		require.Equal(t, "stubborn", stuck[0].ID)
		require.Equal(t, 12*time.Second, stuck[0].Running)
	})
}

// Acknowledgements are sent as soon as no event is ready. Otherwise they are sent two milliseconds
// after the first, or when there are 256.
func TestAckFlushes(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var work time.Duration
		r.sub(Config{}, func(context.Context, *Run) error { time.Sleep(work); return nil })
		r.publish("idle")
		acks := r.wire.of("ack")
		require.Len(t, acks, 1)
		require.Equal(t, r.start, acks[0].at, "at once: nothing is left to start")

		work = 500 * time.Microsecond
		r.publish(numbered(100)...)
		r.pass(time.Second)
		acks = r.wire.of("ack")[1:]
		require.Less(t, len(acks), 30, "about five share one")
		for _, c := range acks[1 : len(acks)-1] {
			require.LessOrEqual(t, c.items, 6)
		}

		work = 0
		before := len(acks)
		r.publish(numbered(1000)...)
		synctest.Wait()
		acks = r.wire.of("ack")[1+before:]
		require.LessOrEqual(t, len(acks), 8, "256 at a time, and one for the rest of each read")
	})
}

// A member reads little more than its handlers need: if runs take longer than a Receive, at most
// one event ahead for each handler. It prefetches nothing before a run has been measured.
func TestReadsLittleAhead(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.publish(numbered(200)...)
		s := r.sub(Config{Concurrency: 2}, func(context.Context, *Run) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		synctest.Wait()
		require.Equal(t, int64(2), s.Counts().Received, "at first one for each handler")
		most := 0
		for range 200 {
			r.pass(time.Millisecond)
			n := s.Counts()
			most = max(most, int(n.Held-n.Running))
		}
		require.LessOrEqual(t, most, 4, "two ahead, and two that are being acknowledged")
		require.Positive(t, most)
	})
}

// A member with slow handlers prefetches nothing, so a new member gets its share.
func TestSlowHandlersReadNothingAhead(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.publish(numbered(10)...)
		s := r.sub(Config{}, func(context.Context, *Run) error { time.Sleep(time.Second); return nil })
		r.pass(3500 * time.Millisecond)
		require.Equal(t, int64(4), s.Counts().Received)
	})
}

// A message that was certainly not stored is tried again as long as there is time.
func TestPublishRepeats(t *testing.T) {
	inBubble(t, Options{Publish: publish.Options{Timeout: 30 * time.Second}}, func(r *rig) {
		r.wire.fail("publish", fmt.Errorf("x: %w", backend.ErrUnavailable))
		time.AfterFunc(10*time.Second, func() { r.wire.fail("publish", nil) })
		r.publish("1")
		require.Less(t, r.at(), 18*time.Second, "the longest pause is 7.5 s")
		require.Greater(t, len(r.wire.of("publish")), 5)

		r.wire.fail("publish", fmt.Errorf("x: %w", backend.ErrUnavailable))
		from := time.Now()
		err := r.Publish(r.Context(), []*backend.Message{{Topic: "t"}})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.LessOrEqual(t, time.Since(from), 30*time.Second)
		r.wire.fail("publish", nil)
	})
}

// After an unknown outcome a message with Once is repeated; without Once the error is
// returned.
func TestPublishUnknownOutcome(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("publish", errors.New("connection lost"))
		err := r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "a"}})
		require.ErrorContains(t, err, "connection lost")
		require.Len(t, r.wire.of("publish"), 1)
		time.AfterFunc(time.Second, func() { r.wire.fail("publish", nil) })
		require.NoError(t, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "b", Once: true}}))
	})
}

// Failed acknowledgements are repeated until the lease is lost.
func TestAckIsTriedUntilTheLeaseIsLost(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("ack", errDown)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.publish("1")
		r.pass(20 * time.Second)
		require.Greater(t, len(r.wire.of("ack")), 4)
		r.wire.fail("ack", nil)
		r.pass(10 * time.Second)
		require.Equal(t, int64(1), s.Counts().Acknowledged)
		require.Equal(t, int64(1), s.Counts().Received)
	})
}

// While a broker is down, the fetcher waits longer and longer, up to 1.5 s, and reports each
// failure. It continues as soon as the broker answers.
func TestFetchBacksOff(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("receive", errDown)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.pass(time.Minute)
		n := len(r.wire.of("receive"))
		require.Greater(t, n, 8)
		require.Less(t, n, 80)
		state, err := s.State()
		require.Equal(t, observer.Degraded, state)
		require.ErrorIs(t, err, errDown)
		require.Error(t, r.Ready(r.Context()))
		r.wire.fail("receive", nil)
		r.pass(8 * time.Second)
		r.publish("1")
		synctest.Wait()
		state, _ = s.State()
		require.Equal(t, observer.Running, state)
		require.Equal(t, int64(1), s.Counts().Acknowledged)
	})
}

// A drain waits for handlers as long as its context allows, cancels them, waits one second more,
// and counts the rest.
func TestDrainDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside := func(r *rig) {
			release := make(chan struct{})
			s := r.sub(Config{Concurrency: 2}, func(ctx context.Context, h *Run) error {
				<-ctx.Done()
				require.Equal(t, 5*time.Second, r.at())
				if h.Delivery().ID == "stuck" {
					<-release
				}
				return ctx.Err()
			})
			r.publish("stuck", "polite")
			r.pass(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			left, err := s.Drain(ctx)
			require.NoError(t, err)
			require.Equal(t, 6*time.Second, r.at())
			require.Equal(t, Abandoned{Topic: "t", Group: "g", Handlers: 1}, left)
			require.Equal(t, int64(0), s.Counts().Acknowledged)
			close(release)
		}
		r := &rig{T: t, start: time.Now(), wire: &wire{Backend: inmemory.New(inmemory.Options{})}}
		r.Engine = New(r.wire, Options{})
		inside(r)
		_, err := r.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// Maintenance runs once for each topic and group, however many subscriptions there are, as often as
// the driver asks. It ends with the last subscription.
func TestMaintenance(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		nothing := func(context.Context, *Run) error { return nil }
		a, b := r.sub(Config{}, nothing), r.sub(Config{}, nothing)
		r.pass(10 * time.Minute)
		n := len(heard[observer.Maintained](r))
		require.Greater(t, n, 1)
		next := heard[observer.Maintained](r)[0].Next
		require.LessOrEqual(t, n, int(10*time.Minute/next)+1, "one loop, not two")
		_, err := a.Drain(r.Context())
		require.NoError(t, err)
		r.pass(2 * next)
		require.Greater(t, len(heard[observer.Maintained](r)), n, "one is still subscribed")
		_, err = b.Drain(r.Context())
		require.NoError(t, err)
		n = len(heard[observer.Maintained](r))
		r.pass(10 * time.Minute)
		require.Len(t, heard[observer.Maintained](r), n)
	})
}

// A bus attaches again to a group that is lost. Its held events are lost, not settled.
func TestGoneIsAttachedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var causes []error
		s := r.sub(Config{}, func(ctx context.Context, h *Run) error {
			if h.Delivery().ID == "held" && len(causes) == 0 {
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
			}
			return nil
		})
		r.publish("held")
		synctest.Wait()
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(t, admin.DeleteTopic(r.Context(), "t"))
		r.publish("new")
		r.pass(time.Minute)
		require.Len(t, r.wire.of("attach"), 2)
		require.ErrorIs(t, causes[0], backend.ErrLeaseLost)
		require.Equal(t, int64(1), s.Counts().Acknowledged)
		state, _ := s.State()
		require.Equal(t, observer.Running, state)
	})
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}
