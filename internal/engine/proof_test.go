package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

// What comes back says nothing of what is away, unless that would have come before:
// b2 does not run before b1 has come back.
func TestWhatComesBackIsNoProof(t *testing.T) {
	for _, c := range []struct {
		name   string
		others error // of the first attempts of a1 and c1
		sort   bool  // the backend hands out by position what is overdue
	}{
		{name: "as if it were new", others: Snooze(time.Second)},
		{name: "due later, by position", others: RetryAfter(errors.New("no"), 20*time.Second), sort: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				if c.sort {
					r.wire.sorts, r.wire.noRefund = true, true
				}
				r.limits = r.wire.Limits()
				verdicts := map[string]error{"a1": c.others, "c1": c.others, "b1": RetryAfter(errors.New("no"), 2*time.Second)}
				var ran record
				s := r.sub(Config{Lease: 5 * time.Second, Order: ByKey}, func(_ context.Context, h *Hold) error {
					id := h.Delivery().ID
					ran.add(id)
					time.Sleep(300 * time.Millisecond) // so that few are read at a time
					defer delete(verdicts, id)
					return verdicts[id]
				})
				r.publishKeyed("a", "a1")
				r.publishKeyed("c", "c1")
				r.publishKeyed("b", "b1", "b2")
				r.pass(time.Second)
				require.Equal(r, []string{"a1", "c1", "b1"}, ran.all())
				s.Pause() // as the backend may be away, until both are overdue
				r.pass(25 * time.Second)
				s.Resume()
				r.pass(40 * time.Second)
				require.Equal(r, []string{"a1", "c1", "b1", "a1", "c1", "b1", "b2"}, ran.all())
			})
		})
	}
}

// What another member had and gave back as if it had never been handed out is no proof
// either.
func TestWhatOthersGaveBackIsNoProof(t *testing.T) {
	var redelivered atomic.Int64
	o := observer.Observer{Received: func(e observer.Received) { redelivered.Add(int64(e.Redelivered)) }}
	inBubble(t, Options{Observer: o}, func(r *rig) {
		var ran record
		s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Hold) error {
			time.Sleep(300 * time.Millisecond) // so that few are read at a time
			if h.Delivery().Key != "a" {
				return nil
			}
			if ran.add(h.Delivery().ID) == 1 {
				return RetryAfter(errors.New("no"), 2*time.Second)
			}
			return nil
		})
		r.publishKeyed("a", "a1", "a2")
		r.pass(400 * time.Millisecond)
		s.Pause()
		const others = 25
		r.publish(make([]string, others)...)
		r.steal(others, 0)
		s.Resume()
		r.pass(20 * time.Second)
		require.Equal(r, []string{"a1", "a1", "a2"}, ran.all())
		require.EqualValues(r, others+1, redelivered.Load())
	})
}

// A Receive that was cut short is no proof that nothing is due, with what it brings or
// with nothing.
func TestWhatIsCutShortIsNoProof(t *testing.T) {
	for _, brings := range []int64{0, 1} {
		t.Run(fmt.Sprint(brings), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var ran record
				s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Hold) error {
					if h.Delivery().Key == "b" {
						return Snooze(time.Millisecond)
					}
					if ran.add(h.Delivery().ID) == 1 {
						return RetryAfter(errors.New("no"), 500*time.Millisecond)
					}
					return nil
				})
				r.publishKeyed("a", "a1", "a2")
				r.publishKeyed("b", "b1")
				r.pass(100 * time.Millisecond)
				s.Pause()
				r.pass(10 * time.Second)
				r.wire.curt.Store(1 + brings)
				s.Resume()
				r.pass(100 * time.Millisecond)
				s.Pause()
				r.pass(100 * time.Millisecond)
				r.wire.curt.Store(0)
				s.Resume()
				r.pass(10 * time.Second)
				require.Equal(r, []string{"a1", "a1", "a2"}, ran.all())
			})
		})
	}
}

// What waits for an event goes on when that has come back, also where it does not run,
// and nothing else does.
func TestWhatComesBackAndDoesNotRunHoldsUpNobody(t *testing.T) {
	for _, c := range []struct {
		name    string
		garbled bool
		taken   int // so often by others, who die
	}{
		{name: "spent", taken: 20},
		{name: "unreadable", garbled: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var ran record
				s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Hold) error {
					if ran.add(h.Delivery().ID) == 1 {
						return errors.New("no")
					}
					return nil
				})
				r.publishKeyed("a", "a1", "a2")
				r.pass(100 * time.Millisecond)
				s.Pause()
				r.pass(time.Second)
				for range c.taken {
					r.steal(1, -1)
					r.pass(time.Millisecond)
				}
				r.wire.garbled.Store(c.garbled)
				s.Resume()
				r.pass(100 * time.Millisecond)
				require.Equal(r, []string{"a1", "a2"}, ran.all())
			})
		})
	}
}

// So it does where the event had come back while it still ran.
func TestWhatComesBackUnreadableWhileItRuns(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		const lease = 30 * time.Second
		var ran record
		r.sub(Config{Lease: lease, Order: ByKey, Concurrency: 2}, func(ctx context.Context, h *Hold) error {
			if ran.add(h.Delivery().ID) == 1 {
				<-ctx.Done() // its lease is lost
				return ctx.Err()
			}
			return nil
		})
		r.publishKeyed("a", "a1")
		r.pass(time.Second)
		r.wire.deaf.Store(true)
		r.wire.garbled.Store(true)
		r.pass(lease)
		r.wire.garbled.Store(false)
		r.wire.deaf.Store(false)
		r.publishKeyed("a", "a2")
		r.pass(100 * time.Millisecond)
		require.Equal(r, []string{"a1", "a2"}, ran.all())
	})
}
