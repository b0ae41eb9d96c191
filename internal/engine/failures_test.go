package engine

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// In manual mode a handler that returns nil has settled nothing, even if the lease was lost in the
// meantime. The event is redelivered.
func TestManualRunThatLostItsLeaseIsNotAcknowledged(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		runs := 0
		r.sub(Config{Mode: Manual}, func(ctx context.Context, _ *Run) error {
			runs++
			<-ctx.Done()
			return nil // the program means to settle it later
		})
		r.publish("1")
		r.pass(100 * time.Second)
		require.Greater(r, runs, 2)
		require.Empty(r, r.wire.of("ack"))
	})
}

// The dead-letter topic accepts a failed event only later. The event keeps its own reason, and the
// later events with its key keep theirs.
func TestFailAllKeepsReasonsWhileTheDeadLetterTopicFails(t *testing.T) {
	var mu sync.Mutex
	var dead []string
	o := observer.Observer{DeadLettered: func(e observer.DeadLettered) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e.ID+" "+e.Reason)
	}}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		s := r.sub(Config{FailAll: true, DeadLetter: "dead"}, func(context.Context, *Run) error { return Permanent(errDown) })
		r.publishKeyed("k", "1", "2", "3")
		r.wire.fail("publish", backend.ErrRefused)
		r.pass(10 * time.Second)
		r.wire.fail("publish", nil)
		r.pass(time.Minute)
		require.Equal(r, []string{"k"}, s.FailedKeys())
		require.Equal(r, []string{"1 permanent", "2 key-failed", "3 key-failed"}, dead)
	})
}

// With FailAll, an event that was delivered too often has failed permanently. The later events with
// its key are dead-lettered after it, in order.
func TestFailAllFollowsWhatCameTooOften(t *testing.T) {
	var mu sync.Mutex
	var dead []string
	o := observer.Observer{DeadLettered: func(e observer.DeadLettered) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e.ID+" "+e.Reason)
	}}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		r.wire.fail("receive", backend.ErrUnavailable)
		source, err := r.wire.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Millisecond})
		require.NoError(r, err)
		r.publishKeyed("k", "1")
		for range 60 {
			_, _ = source.(*wireSource).Source.Receive(r.Context(), 1, 0)
			r.pass(2 * time.Millisecond)
		}
		r.publishKeyed("k", "2", "3")
		var ran []string
		r.sub(Config{FailAll: true, DeadLetter: "dead"}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			return nil
		})
		r.wire.fail("receive", nil)
		r.pass(time.Minute)
		require.Equal(r, "1 no-verdict, 2 key-failed, 3 key-failed", strings.Join(dead, ", "))
		require.Empty(r, ran)
	})
}

// With FailAll, an event that is larger than MaxReceive has failed permanently, so the later events
// with its key become dead letters after it.
func TestFailAllFollowsWhatIsTooLarge(t *testing.T) {
	var mu sync.Mutex
	var dead, handled []string
	o := observer.Observer{DeadLettered: func(e observer.DeadLettered) {
		mu.Lock()
		defer mu.Unlock()
		dead = append(dead, e.ID+" "+e.Reason)
	}, Handled: func(e observer.Handled) { handled = append(handled, e.ID) }}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		var ran []string
		s := r.sub(Config{FailAll: true, DeadLetter: "dead", MaxReceive: 200}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			return nil
		})
		large := &backend.Message{Topic: "t", ID: "large", Key: "k", Payload: make([]byte, 300)}
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "1", Key: "k"}, large, {Topic: "t", ID: "2", Key: "k"}, {Topic: "t", ID: "3", Key: "other"}}))
		r.pass(time.Minute)
		require.Equal(r, []string{"k"}, s.FailedKeys())
		require.Equal(r, []string{"large too-large", "2 key-failed"}, dead)
		require.ElementsMatch(r, []string{"1", "3"}, ran)
		require.Equal(r, ran, handled)
		require.Equal(r, int64(2), s.Counts().DeadLettered)
	})
}

// A driver may return a context's error even though the context of Receive has not ended. The bus
// waits before it calls the driver again, and informs the observer.
func TestReceiveThatTimesOutBacksOff(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.delay("receive", time.Millisecond) // otherwise no time would pass in the bubble
		r.wire.fail("receive", context.DeadlineExceeded)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.pass(time.Minute)
		require.Less(r, len(r.wire.of("receive")), 80)
		state, _ := s.State()
		require.Equal(r, observer.Degraded, state)
		r.wire.fail("receive", nil)
	})
}

// If a group is lost again and again, the wait before each new attach grows.
func TestAttachingAgainBacksOff(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.delay("receive", time.Millisecond)
		r.wire.fail("receive", backend.ErrGone)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.pass(time.Minute)
		require.Less(r, len(r.wire.of("attach")), 80)
		r.wire.fail("receive", nil)
		r.publish("1")
		r.pass(10 * time.Second)
		require.EqualValues(r, 1, s.Counts().Acknowledged)
	})
}

// If the driver panics in a later Attach, the panic becomes an error and Attach is repeated.
func TestPanicOfAttachIsContained(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.pass(time.Second)
		r.wire.panics("attach", true)
		admin, _ := backend.As[backend.Admin](r.wire)
		r.publish("1")
		r.pass(time.Second)
		require.NoError(r, admin.DeleteTopic(r.Context(), "t"))
		r.pass(10 * time.Second)
		r.wire.panics("attach", false)
		r.pass(10 * time.Second)
		r.publish("2")
		r.pass(10 * time.Second)
		require.EqualValues(r, 2, s.Counts().Acknowledged)
	})
}

// A Delay is not repeated after the lease has expired.
func TestDelayIsNotRepeatedAfterTheLease(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var failed sync.Map
		r.sub(Config{Lease: 6 * time.Second, Concurrency: 100}, func(_ context.Context, h *Run) error {
			if _, again := failed.LoadOrStore(h.Delivery().ID, true); again {
				return nil
			}
			return errDown
		})
		r.pass(time.Second)
		r.wire.fail("delay", backend.ErrUnknownOutcome)
		r.publish(numbered(100)...)
		begun := time.Now()
		r.pass(20 * time.Second)
		for _, c := range r.wire.of("delay") {
			require.Less(r, c.at.Sub(begun), 6*time.Second)
		}
		r.wire.fail("delay", nil)
	})
}

// An event that was acknowledged on receipt but did not run is reported as discarded,
// because it is not redelivered.
func TestAcknowledgedTooLateIsDiscarded(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{Mode: OnReceive}, func(context.Context, *Run) error { return nil })
		r.wire.answerAfter("ack", 40*time.Second)
		r.publish("1")
		r.pass(5 * time.Minute)
		require.EqualValues(r, 1, s.Counts().Received)
		require.EqualValues(r, 1, s.Counts().Discarded)
	})
}

// A Snooze that never ends keeps the order of the key.
func TestEndlessSnoozeKeepsOrder(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		r.sub(Config{}, func(_ context.Context, h *Run) error {
			ran = append(ran, h.Delivery().ID)
			return Snooze(math.MaxInt64)
		})
		r.publishKeyed("k", "1")
		r.pass(time.Second)
		r.publishKeyed("k", "2")
		r.pass(time.Minute)
		require.Equal(r, []string{"1"}, ran)
	})
}

// Nack returns no error for an event that can be delayed neither here nor in the backend.
func TestNackWithoutExtender(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noExtend = true
		taken := make(chan *Run, 4)
		r.sub(Config{Lease: 30 * time.Second, Mode: Manual, Timeout: 10 * time.Second}, func(_ context.Context, h *Run) error { taken <- h; return nil })
		r.publishKeyed("k", "1")
		h := <-taken
		require.NoError(r, h.Nack(r.Context(), errDown))
		r.pass(time.Minute)
	})
}

// The observer also learns of a stuck handler in manual mode.
func TestStuckHandlerOfManualModeIsTold(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.sub(Config{Mode: Manual, Timeout: 5 * time.Second, Policy: policy(0, func(*Hold, error) time.Duration { return time.Hour })}, func(context.Context, *Run) error {
			time.Sleep(20 * time.Second) // ignores its context
			return nil
		})
		r.publish("1")
		r.pass(time.Minute)
		require.Len(r, heard[observer.Stuck](r), 1)
	})
}

// panicky is a backend whose methods panic.
type panicky struct{ backend.Backend }

func (panicky) Ping(context.Context) error { panic("ping") }
func (panicky) Declare(context.Context, string, backend.Declaration) (backend.TopicSettings, error) {
	panic("declare")
}
func (panicky) Close() error { panic("close") }

// Panics of Ping, Declare and Close become errors. After a panic of Close, a later Shutdown
// has the same result.
func TestPanicsOfTheBackendAreContained(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		e := New(panicky{r.wire}, Options{})
		var p *observer.PanicError
		require.ErrorAs(r, e.Ready(r.Context()), &p)
		require.Equal(r, "ping", p.Value)
		require.EqualError(r, p, "eventbus: driver's Ping panicked: ping")
		_, err := e.Subscribe(r.Context(), Config{Topic: "t", Group: "g", DeadLetter: "dead"})
		require.ErrorAs(r, err, &p)
		require.Equal(r, "declare", p.Value)
		for range 2 {
			_, err := e.Shutdown(r.Context())
			require.ErrorAs(r, err, &p)
			require.Equal(r, "close", p.Value)
		}
	})
}
