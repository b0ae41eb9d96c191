package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A breaker that opens stops reads, but no retries. The observer and the state say why, and the
// engine stays ready. The breaker closes when the trial succeeds. No event is lost, whether events
// are given back, wait for their retries in the member, or are in manual mode.
func TestBreakerLimitsTheSubscription(t *testing.T) {
	for _, c := range []struct {
		name    string
		noDelay bool
		keyed   bool
		mode    Mode
	}{{name: "by key", keyed: true}, {name: "without keys"}, {name: "retries in the member", noDelay: true, keyed: true}, {name: "manual", mode: Manual}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.noDelay = c.noDelay
				b := limiter.NewBreaker(limiter.BreakerOptions{Runs: 5, Pause: time.Minute})
				var broken atomic.Bool
				broken.Store(true)
				s := r.sub(Config{
					Limiter: limiter.All(limiter.MaxInFlight(1024), b), Mode: c.mode, Timeout: time.Minute,
					Policy: policy(100, func(*Hold, error) time.Duration { return time.Second }),
				}, func(_ context.Context, h *Run) error {
					var err error
					if broken.Load() {
						err = errors.New("down")
					}
					if c.mode != Manual {
						return err
					}
					settle := h.Ack
					if broken.Load() {
						settle = func(ctx context.Context) error { return h.Nack(ctx, err) }
					}
					go func() { assert.NoError(r, settle(context.WithoutCancel(r.Context()))) }()
					return nil
				})
				for i := range 50 {
					key := "k"
					if !c.keyed {
						key = ""
					}
					r.publishKeyed(key, fmt.Sprint(i))
				}
				r.pass(10 * time.Second)
				require.Equal(r, limiter.Open, b.State())
				state, err := s.State()
				require.Equal(r, observer.Limited, state)
				require.Regexp(r, `the breaker is open for 1m0s: (\d+) of (\d+) runs failed within 10s`, err.Error())
				require.NoError(r, r.Ready(r.Context()))
				changes := heard[observer.StateChanged](r)
				require.Equal(r, observer.Limited, changes[len(changes)-1].To)
				require.Equal(r, err, changes[len(changes)-1].Err)
				require.Empty(r, heard[observer.Failed](r))

				reads := len(r.wire.of("receive"))
				r.pass(40 * time.Second)
				require.Len(r, r.wire.of("receive"), reads, "nothing is read")

				s.Pause()
				r.pass(5 * time.Minute)
				state, err = s.State()
				require.Equal(r, observer.Paused, state, "a pause ends by Resume only")
				require.NoError(r, err, "no error caused the pause")
				s.Resume()
				r.pass(time.Second)
				broken.Store(false)
				r.pass(2 * time.Minute)
				r.publish("the trial, if the member held all the others")
				r.pass(time.Second)
				require.Equal(r, limiter.Closed, b.State())
				state, err = s.State()
				require.Equal(r, observer.Running, state)
				require.NoError(r, err)
				require.Equal(r, int64(51), s.Counts().Acknowledged)
			})
		})
	}
}

// An adaptive limiter counts only runs of handlers. It counts neither the events that are given
// back along with a failed one, nor the time that a retry waits.
func TestLimiterIsToldRuns(t *testing.T) {
	for _, noDelay := range []bool{false, true} {
		inBubble(t, Options{}, func(r *rig) {
			r.wire.noDelay = noDelay
			l := &runLog{Limiter: limiter.MaxInFlight(100)}
			failures := 7
			s := r.sub(Config{
				Limiter: l, Timeout: time.Minute,
				Policy: policy(100, func(*Hold, error) time.Duration { return time.Minute }),
			}, func(context.Context, *Run) error {
				time.Sleep(time.Second)
				if failures > 0 {
					failures--
					return errors.New("not yet")
				}
				return nil
			})
			for i := range 20 {
				r.publishKeyed("k", fmt.Sprint(i))
			}
			r.pass(time.Hour)
			require.Equal(r, int64(20), s.Counts().Acknowledged)
			require.Equal(r, 27, l.sum.Runs)
			require.Equal(r, 7, l.sum.Failed)
			require.Equal(r, 27*time.Second, l.sum.Took)
		})
	}
}

// The limiter counts a run in manual mode once, even though its handler both settles the event and
// fails. With OnReceive, an event whose acknowledgement is not confirmed has no run.
func TestLimiterIsToldRunsOfOtherModes(t *testing.T) {
	for _, mode := range []Mode{Manual, OnReceive} {
		inBubble(t, Options{}, func(r *rig) {
			l := &runLog{Limiter: limiter.MaxInFlight(100)}
			if mode == OnReceive {
				r.wire.fail("ack", backend.ErrLeaseLost)
			}
			r.sub(Config{Limiter: l, Mode: mode, Timeout: time.Minute}, func(ctx context.Context, h *Run) error {
				if h.Attempt() == 1 {
					_ = h.Nack(ctx, errDown)
					return errDown
				}
				return h.Ack(ctx)
			})
			r.publish("1")
			r.pass(10 * time.Second)
			want := limiter.Released{Settled: 2, Runs: 2, Failed: 1}
			if mode == OnReceive {
				want = limiter.Released{Settled: 1}
			}
			require.Equal(r, want, limiter.Released{Settled: l.sum.Settled, Runs: l.sum.Runs, Failed: l.sum.Failed})
		})
	}
}

// A subscription without events is Limited only while its limiter grants nothing.
func TestLimitedEndsWithoutEvents(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		shut := &shutLimiter{limiter.MaxInFlight(100), time.Now().Add(time.Minute)}
		s := r.sub(Config{Limiter: shut}, func(context.Context, *Run) error { return nil })
		r.pass(30 * time.Second)
		state, _ := s.State()
		require.Equal(r, observer.Limited, state)
		r.pass(time.Minute)
		state, _ = s.State()
		require.Equal(r, observer.Running, state)
	})
}

// A topic that is waiting for a slot of the limiter reserves no capacity that another topic needs.
func TestUngrantedReadsReserveNothing(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		l := &doorLimiter{Limiter: limiter.MaxInFlight(100)}
		s := r.sub(Config{Topics: []string{"t", "u"}, Limiter: l, Concurrency: 4, MaxInFlight: 100}, func(ctx context.Context, _ *Run) error {
			wait.Sleep(ctx, time.Second)
			return nil
		})
		ids := make([]string, 40)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		r.publish(ids...)
		r.pass(30 * time.Second) // all events that were received have been handled
		state, _ := s.State()
		require.Equal(r, observer.Limited, state)
		require.Greater(r, s.consumers.byTopic["t"].fetcher.lastRead, 1)
		require.Equal(r, s.consumers.byTopic["t"].fetcher.wanted(), s.consumers.byTopic["u"].fetcher.wanted())
	})
}

// doorLimiter is a limiter that grants nothing after it has granted several slots at once.
type doorLimiter struct {
	limiter.Limiter
	shut atomic.Bool
}

func (l *doorLimiter) Acquire(ctx context.Context, n int) (limiter.Grant, error) {
	if l.shut.Load() {
		return limiter.Grant{}, &limiter.WaitError{Until: time.Now().Add(time.Minute)}
	}
	if n > 1 {
		l.shut.Store(true)
	}
	return l.Limiter.Acquire(ctx, n)
}

// shutLimiter is a limiter that grants nothing before a given time.
type shutLimiter struct {
	limiter.Limiter
	until time.Time
}

func (l *shutLimiter) Acquire(ctx context.Context, n int) (limiter.Grant, error) {
	if time.Now().Before(l.until) {
		return limiter.Grant{}, &limiter.WaitError{Until: l.until}
	}
	return l.Limiter.Acquire(ctx, n)
}

// runLog is a limiter that adds up the runs in Released.
type runLog struct {
	limiter.Limiter
	mu  sync.Mutex
	sum limiter.Released
}

func (l *runLog) Release(r limiter.Released) {
	l.mu.Lock()
	l.sum.Settled += r.Settled
	l.sum.Runs += r.Runs
	l.sum.Failed += r.Failed
	l.sum.Took += r.Took
	l.mu.Unlock()
	l.Limiter.Release(r)
}
