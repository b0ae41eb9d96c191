package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A recovery handles many redelivered events, and measures how long new ones wait.
type recovery struct {
	mu      sync.Mutex
	now     int // redelivered events that are running
	most    int
	runs    map[string]int
	attempt map[string]int // the highest
	fresh   map[string]time.Time
	waited  time.Duration // of the new event that waited longest
}

// handle fails first attempts, except those of new events. A second attempt takes a second.
func (c *recovery) handle(_ context.Context, h *Run) error {
	id := h.Delivery().ID
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[id]++
	c.attempt[id] = max(c.attempt[id], h.Attempt())
	if id[0] == 'f' {
		c.waited = max(c.waited, time.Since(c.fresh[id]))
		return nil
	}
	if h.Attempt() == 1 {
		return errors.New("not yet")
	}
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(time.Second)
	c.mu.Lock()
	c.now--
	return nil
}

// A postponed event uses up no attempt, even if the backend counts each receipt and redelivers the
// event before it answers the Delay.
func TestPostponedEventsSpendNoAttempt(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		r.wire.answerAfter("delay", time.Second)
		var most atomic.Int64
		r.sub(Config{Concurrency: 4, MaxRedelivered: 1}, func(_ context.Context, h *Run) error {
			most.Store(max(most.Load(), int64(h.Attempt())))
			if h.Attempt() == 1 {
				return errors.New("not yet")
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		for i := range 20 {
			r.publish(fmt.Sprint(i))
		}
		r.pass(time.Minute)
		require.EqualValues(r, 2, most.Load())
	})
}

// One slow run does not hold up the redelivered events that come after it.
func TestSlowRunDoesNotPostponeOthers(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		s := r.sub(Config{Concurrency: 4, MaxRedelivered: 1}, func(_ context.Context, h *Run) error {
			switch {
			case h.Attempt() == 1:
				return errors.New("not yet")
			case h.Delivery().ID == "slow":
				time.Sleep(5 * time.Minute)
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		r.publish("slow")
		r.pass(6 * time.Minute)
		for i := range 50 {
			r.publish(fmt.Sprint(i))
		}
		r.pass(time.Minute)
		require.Equal(t, int64(51), s.Counts().Acknowledged)
	})
}

// When redelivered events run fast again, the next postponed ones are due soon.
func TestPostponedReturnSoon(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var fast atomic.Bool
		s := r.sub(Config{Concurrency: 2, MaxRedelivered: 1}, func(_ context.Context, h *Run) error {
			switch {
			case h.Attempt() == 1:
				return errors.New("not yet")
			case !fast.Load():
				time.Sleep(time.Second)
			}
			return nil
		})
		for i := range 300 {
			r.publish(fmt.Sprint(i))
		}
		r.pass(time.Minute)
		require.Less(t, s.Counts().Acknowledged, int64(100))
		fast.Store(true)
		r.pass(30 * time.Second)
		require.Equal(t, int64(300), s.Counts().Acknowledged)
	})
}

// While many events are redelivered, at most MaxRedelivered of them run at a time. New events run
// without delay, and waiting costs a redelivered event no attempt. This holds whether the backend
// refunds attempts, counts each receipt, or retries wait in the member.
func TestRedeliveredLeaveHandlersToFresh(t *testing.T) {
	for _, c := range []struct {
		name              string
		noDelay, noRefund bool
		keyed             bool
	}{{name: "refund"}, {name: "refund, keys", keyed: true}, {name: "no refund", noRefund: true}, {name: "no refund, keys", noRefund: true, keyed: true}, {name: "no delay", noDelay: true}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.noDelay, r.wire.noRefund = c.noDelay, c.noRefund
				r.limits = r.wire.Limits()
				rec := &recovery{runs: map[string]int{}, attempt: map[string]int{}, fresh: map[string]time.Time{}}
				s := r.sub(Config{Concurrency: 4, MaxRedelivered: 2}, rec.handle)
				const events = 300
				for i := range events {
					key := ""
					if c.keyed {
						key = fmt.Sprint(i % 100)
					}
					r.publishKeyed(key, fmt.Sprintf("%03d", i))
				}
				for i := range 100 {
					r.pass(time.Second)
					id := fmt.Sprintf("f%03d", i)
					rec.mu.Lock()
					rec.fresh[id] = time.Now()
					rec.mu.Unlock()
					r.publish(id)
				}
				r.pass(3 * time.Minute)
				rec.mu.Lock()
				defer rec.mu.Unlock()
				require.Equal(t, 2, rec.most, "redelivered events at once")
				require.Less(t, rec.waited, 100*time.Millisecond, "fresh events")
				require.Len(t, rec.runs, events+100)
				for id, n := range rec.runs {
					require.LessOrEqual(t, n, 2, "runs of %s", id)
					require.LessOrEqual(t, rec.attempt[id], 2, "attempts of %s", id)
				}
				require.Equal(t, int64(events+100), s.Counts().Acknowledged)
				require.LessOrEqual(t, len(r.wire.of("delay")), 15*events, "each event is read about every ten seconds, for 150 seconds")
			})
		})
	}
}

// A new event that a member gave back before it started is still new: it doesn't wait for
// redelivered events.
func TestGivenBackEventsAreNew(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var last atomic.Pointer[time.Time]
		s := r.sub(Config{Concurrency: 4, MaxRedelivered: 1}, func(_ context.Context, h *Run) error {
			if id := h.Delivery().ID; id[0] == 'f' {
				time.Sleep(2 * time.Second)
				now := time.Now()
				last.Store(&now)
				return nil
			}
			if h.Attempt() == 1 {
				return errors.New("not yet")
			}
			time.Sleep(time.Second)
			return nil
		})
		for i := range 60 {
			r.publish(fmt.Sprint(i))
		}
		r.pass(time.Second)
		began := time.Now()
		for i := range 60 {
			r.publish(fmt.Sprintf("f%d", i))
		}
		r.pass(3 * time.Minute)
		require.Equal(t, int64(120), s.Counts().Acknowledged)
		require.Less(t, last.Load().Sub(began), 45*time.Second, "60 events of 2 s, three or four at a time")
	})
}

// A redriven event counts toward the limit, even after it was postponed and waited in the member.
func TestRedrivenEventsAreBounded(t *testing.T) {
	for _, noRefund := range []bool{false, true} {
		inBubble(t, Options{}, func(r *rig) {
			r.wire.noRefund = noRefund
			r.limits = r.wire.Limits()
			var now, most atomic.Int64
			s := r.sub(Config{Concurrency: 4, MaxRedelivered: 1}, func(context.Context, *Run) error {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			})
			for i := range 20 {
				dead := &backend.Message{Topic: "t.dlq", ID: "dead", Position: fmt.Sprint(i)}
				letter.Set(dead, letter.Topic, "t")
				letter.Set(dead, letter.Group, "g")
				letter.Set(dead, letter.ID, fmt.Sprint(i))
				m := &backend.Message{Key: fmt.Sprint(i)}
				letter.Redrive(m, dead)
				require.NoError(t, r.Publish(t.Context(), []*backend.Message{m}))
			}
			r.pass(5 * time.Minute)
			require.Equal(t, int64(20), s.Counts().Acknowledged)
			require.Equal(t, int64(1), most.Load(), "redriven events at once, no refund: %v", noRefund)
		})
	}
}

// A free handler takes the next redelivered event at once.
func TestRedeliveredRunOneAfterAnother(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var last atomic.Int64
		s := r.sub(Config{Concurrency: 16, MaxRedelivered: 1, Policy: policy(9, func(*Hold, error) time.Duration { return 10 * time.Millisecond })}, func(_ context.Context, h *Run) error {
			time.Sleep(time.Millisecond)
			if last.Store(int64(r.at())); h.Attempt() == 1 {
				return errDown
			}
			return nil
		})
		r.publish(numbered(200)...)
		r.pass(time.Minute)
		require.Equal(r, int64(200), s.Counts().Acknowledged)
		require.Less(r, time.Duration(last.Load()), time.Second)
	})
}
