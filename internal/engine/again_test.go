package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// What a broker hands out again, having forgotten that it had, takes the place of what
// is held and has not run: it runs once, and in order. The broker may have forgotten
// the attempt too.
func TestWhatComesAgainRunsOnce(t *testing.T) {
	for _, amnesia := range []bool{false, true} {
		t.Run(fmt.Sprintf("amnesia=%v", amnesia), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var ran record
				r.sub(Config{Lease: 10 * time.Second, Order: ByKey}, func(ctx context.Context, h *Hold) error {
					if ran.add(h.Delivery().ID) == 2 {
						<-ctx.Done() // of the first after the warm-up, whose lease is lost
						return ctx.Err()
					}
					return nil
				})
				r.publishKeyed("k", "0") // so that it is known how long a run takes, and the next are read ahead
				r.pass(time.Second)
				r.wire.amnesia.Store(amnesia)
				r.wire.deaf.Store(true)
				r.publishKeyed("k", "1", "2", "3", "4")
				r.pass(10*time.Second + 600*time.Millisecond)
				r.wire.deaf.Store(false)
				require.Equal(r, []string{"0", "1", "1", "2", "3", "4"}, ran.all())
				require.Len(r, heard[observer.LeaseLost](r), 4)
				r.pass(time.Minute)
				require.Len(r, ran.all(), 6)
			})
		})
	}
}

// So does what came here as a redelivery before.
func TestWhatComesAgainOnceMoreRunsOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.publishKeyed("k", "1", "2")
		other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Second})
		require.NoError(r, err)
		_, err = other.Receive(r.Context(), 2)
		require.NoError(r, err)
		r.pass(2 * time.Second)
		var ran record
		r.sub(Config{Lease: 10 * time.Second, Order: ByKey, Concurrency: 4}, func(_ context.Context, h *Hold) error {
			if ran.add(h.Delivery().ID) == 1 {
				r.wire.amnesia.Store(true)
				r.wire.deaf.Store(true)
				time.Sleep(10*time.Second + 300*time.Millisecond)
			}
			return nil
		})
		r.pass(time.Minute)
		require.Equal(r, []string{"1", "1", "2"}, ran.all())
	})
}

// A Receive that took longer than a lease brings a message twice: what is behind waits
// for the second, and no longer.
func TestWhatComesTwiceInOneRead(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("fails=%v", fails), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				const lease = 10 * time.Second
				var ran record
				var again, behind time.Duration
				r.sub(Config{Lease: lease, Order: ByKey, Concurrency: 4}, func(ctx context.Context, _ *Hold) error {
					switch n := ran.add(""); {
					case n == 1 && fails:
						return errors.New("no")
					case n == 1:
						<-ctx.Done()
						return ctx.Err()
					case n == 2:
						again = r.at()
					default:
						behind = r.at()
					}
					return nil
				})
				r.wire.twice.Store(int64(lease + time.Second))
				r.publishKeyed("k", "1")
				r.pass(lease + 1500*time.Millisecond)
				r.publishKeyed("k", "2")
				r.pass(time.Minute)
				require.Len(r, ran.all(), 3)
				require.Less(r, behind-again, time.Second)
			})
		})
	}
}

// What came again while it was being buried does not wait here for another attempt of
// the first as well.
func TestWhatCameAgainDoesNotRestTwice(t *testing.T) {
	inBubble(t, Options{PublishTimeout: 7 * time.Second}, func(r *rig) {
		r.wire.noDelay = true
		var ran record
		var again, behind time.Duration
		p := Policy{MaxAttempts: 3, Backoff: func(int) time.Duration { return 20 * time.Second }}
		r.sub(Config{Lease: 30 * time.Second, Order: ByKey, DeadLetter: "dead", Policy: p}, func(context.Context, *Hold) error {
			switch ran.add("") {
			case 1:
				r.wire.deaf.Store(true)
				r.wire.fail("publish", backend.ErrUnavailable)
				time.Sleep(28 * time.Second)
				return Permanent(errors.New("never"))
			case 2:
				again = r.at()
			default:
				behind = r.at()
			}
			return nil
		})
		r.publishKeyed("k", "1", "2")
		r.pass(38 * time.Second) // it has come again, and the first could not be buried
		r.wire.deaf.Store(false)
		r.wire.fail("publish", nil)
		r.pass(10 * time.Minute)
		require.Len(r, ran.all(), 3)
		require.Less(r, behind-again, time.Second)
	})
}

// The answer to a Delay that comes late says nothing of what came again meanwhile and
// is on its own way.
func TestLateAnswerOfDelay(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran record
		r.sub(Config{Lease: time.Minute, Order: ByKey, Concurrency: 2}, func(_ context.Context, h *Hold) error {
			if ran.add(h.Delivery().ID) < 3 {
				return RetryAfter(errors.New("no"), 100*time.Millisecond)
			}
			return nil
		})
		r.wire.late.Store(int64(2 * time.Second))
		r.publishKeyed("k", "1", "2")
		r.pass(time.Second)
		r.wire.late.Store(0)
		r.wire.delay("delay", 8*time.Second)
		r.pass(8 * time.Second)
		r.wire.delay("delay", 0)
		r.pass(time.Minute)
		require.Equal(r, []string{"1", "1", "1", "2"}, ran.all())
	})
}
