package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/limiter"
)

type brokenLimiter struct {
	limiter.Limiter
	broken atomic.Bool
	calls  atomic.Int64
}

func (l *brokenLimiter) Acquire(ctx context.Context, n int) (limiter.Grant, error) {
	if l.broken.Load() {
		if l.calls.Add(1) > 10_000 {
			time.Sleep(time.Hour)
		}
		return limiter.Grant{}, errDown
	}
	return l.Limiter.Acquire(ctx, n)
}

// A limiter that fails is not called in a hot loop.
func TestBrokenLimiterIsNotAskedInAHotLoop(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		l := &brokenLimiter{Limiter: limiter.MaxInFlight(10)}
		r.sub(Config{Limiter: l, Policy: policy(3, func(*Hold, error) time.Duration { return time.Minute })},
			func(_ context.Context, h *Run) error { l.broken.Store(true); return errors.New("not yet") })
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "1", Key: "k"}}))
		r.pass(10 * time.Second)
		l.broken.Store(false)
		require.LessOrEqual(r, l.calls.Load(), int64(30))
	})
}

// A driver that always returns nothing at once isn't called in a hot loop.
func TestEmptyReadsArePaced(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.empty.Store(true)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		r.pass(time.Second)
		require.LessOrEqual(t, len(r.wire.of("receive")), 201)
		r.wire.empty.Store(false)
		r.publish("1")
		r.pass(time.Second)
		require.Equal(t, int64(1), s.Counts().Acknowledged)
	})
}

// Lent deliveries are copied and cleared at once. Otherwise a member that is waiting or paused
// would keep the payloads of its last read.
func TestReceivedSliceIsCleared(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		handled := 0
		r.sub(Config{}, func(context.Context, *Run) error { handled++; return nil })
		for range 10 {
			r.publish("event")
			r.pass(time.Second)
		}
		require.Equal(r, 10, handled)
		require.Zero(r, r.wire.kept.Load())
	})
}

// A worker that is waiting for work keeps no event of its last read in memory.
func TestIdleWorkerKeepsNoPayload(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var payloads []weak.Pointer[byte]
		r.sub(Config{}, func(_ context.Context, h *Run) error {
			payloads = append(payloads, weak.Make(&h.Delivery().Payload[0]))
			return nil
		})
		for range 100 {
			require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "1", Payload: make([]byte, 1000)}}))
		}
		r.pass(time.Minute)
		for range 2 { // a sync.Pool keeps its items for one more cycle
			runtime.GC()
		}
		require.Len(r, payloads, 100)
		for i, p := range payloads {
			require.Nil(r, p.Value(), "event %d", i)
		}
	})
}

// While a handler runs for a long time, the payloads of settled events from the same read are
// freed.
func TestSlowHandlerKeepsNoOtherPayload(t *testing.T) {
	for _, mode := range []Mode{OnSuccess, Manual} {
		inBubble(t, Options{}, func(r *rig) {
			var quick []weak.Pointer[byte]
			var slow sync.WaitGroup
			s := r.sub(Config{Mode: mode, Concurrency: 2, Timeout: time.Hour}, func(ctx context.Context, h *Run) error {
				if h.Delivery().ID == "slow" {
					slow.Wait()
				} else {
					quick = append(quick, weak.Make(&h.Delivery().Payload[0]))
				}
				if mode == Manual {
					return h.Ack(ctx)
				}
				return nil
			})
			require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", Payload: make([]byte, 32)}})) // then reads are large; smaller payloads share memory
			r.pass(time.Second)
			var msgs []*backend.Message // so large that none shares memory with another
			for i := range 100 {
				msgs = append(msgs, &backend.Message{Topic: "t", ID: []string{"slow", "quick"}[min(i, 1)], Payload: make([]byte, 8<<10)})
			}
			slow.Add(1)
			defer slow.Done()
			require.NoError(r, r.Publish(r.Context(), msgs))
			r.pass(time.Minute)
			for range 2 {
				runtime.GC()
			}
			require.EqualValues(r, 1, s.Counts().Held)
			require.Len(r, quick, 100)
			for i, p := range quick {
				require.Nil(r, p.Value(), "mode %d, event %d", mode, i)
			}
		})
	}
}

// The key of a failed event may share its memory with all strings of its Receive. The member
// remembers the key, but doesn't keep those strings.
func TestFailedKeyKeepsNoRead(t *testing.T) {
	for _, c := range []Config{{FailAll: true}, {}} {
		inBubble(t, Options{}, func(r *rig) {
			var texts []weak.Pointer[byte]
			r.wire.handOut = func(member int, d *backend.Delivery) {
				if member > 0 {
					all := d.Key + d.Position + strings.Repeat("text ", 1000)
					texts = append(texts, weak.Make(unsafe.StringData(all)))
					d.Key, d.Position = all[:len(d.Key)], all[len(d.Key):][:len(d.Position)]
				}
			}
			s := r.sub(c, func(_ context.Context, h *Run) error {
				switch {
				case h.Delivery().ID != "failing":
					return nil
				case c.FailAll:
					return Permanent(errDown)
				}
				return RetryAfter(errDown, time.Hour)
			})
			r.publishKeyed("k", "failing")
			r.pass(time.Second)
			r.publishKeyed("other", "1") // the fetcher keeps the last position
			r.pass(time.Minute)
			for range 2 {
				runtime.GC()
			}
			require.True(r, s.consumers.all()[0].attachment.Load().holds.Remembers("k"))
			require.Len(r, texts, 2)
			require.Nil(r, texts[0].Value())
		})
	}
}

// While the broker is unavailable, the fetcher's waits grow. Once a call of the bus succeeds, the
// fetcher reads again at once.
func TestSuccessWakesTheFetcher(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("receive", backend.ErrUnavailable)
		s := r.sub(Config{}, func(context.Context, *Run) error { return nil })
		for range 20 { // the waits are random
			r.pass(time.Minute)
			r.wire.fail("receive", nil)
			before := s.Counts().Received
			r.publish("1")
			time.Sleep(wait.Least)
			synctest.Wait()
			require.Equal(r, before+1, s.Counts().Received)
			r.wire.fail("receive", backend.ErrUnavailable)
			r.publish("2") // ends the wait of the Receive under way
		}
		r.wire.fail("receive", nil)
	})
}
