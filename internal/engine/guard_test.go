package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A Limiter of the program that panics, or that grants nothing without an error, ends neither the
// process nor the subscription, and doesn't make the fetcher spin.
func TestBrokenLimiters(t *testing.T) {
	for name, l := range map[string]*faultyLimiter{
		"acquire panics": {acquire: func() (int, error) { panic("a bug") }},
		"grants nothing": {acquire: func() (int, error) { return 0, nil }},
		"release panics": {release: true},
		"fill panics":    {fill: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				l.Limiter = limiter.MaxInFlight(8)
				s := r.sub(Config{Limiter: r.Guard(l)}, func(context.Context, *Run) error { return nil })
				r.publish("1")
				r.pass(time.Minute)
				require.LessOrEqual(r, l.calls.Load(), int64(80))
				require.NotEmpty(r, heard[observer.Failed](r))
				if l.acquire != nil {
					require.Error(r, r.Ready(r.Context()))
					l.mended.Store(true)
					r.pass(time.Minute)
				}
				require.NoError(r, r.Ready(r.Context()))
				require.Equal(r, int64(1), s.Counts().Acknowledged)
			})
		})
	}
}

type faultyLimiter struct {
	limiter.Limiter
	acquire       func() (int, error)
	release, fill bool
	calls         atomic.Int64
	mended        atomic.Bool
}

func (l *faultyLimiter) Acquire(ctx context.Context, n int) (limiter.Grant, error) {
	l.calls.Add(1)
	if l.acquire != nil && !l.mended.Load() {
		n, err := l.acquire()
		return limiter.Grant{Messages: n}, err
	}
	return l.Limiter.Acquire(ctx, n)
}

func (l *faultyLimiter) Fill(g limiter.Grant, n int, bytes int64) {
	if l.fill {
		panic("a bug")
	}
	l.Limiter.Fill(g, n, bytes)
}

func (l *faultyLimiter) Release(f limiter.Released) {
	l.Limiter.Release(f)
	if l.release {
		panic("a bug")
	}
}

// A policy that ends its goroutine doesn't keep the event: it is retried.
func TestPolicyThatEndsItsGoroutine(t *testing.T) {
	for _, mode := range []Mode{OnSuccess, Manual} {
		inBubble(t, Options{}, func(r *rig) {
			asked := 0
			s := r.sub(Config{Mode: mode, Policy: policy(9, func(*Hold, error) time.Duration {
				if asked++; asked == 1 {
					runtime.Goexit()
				}
				return time.Second
			})}, func(ctx context.Context, h *Run) error {
				switch {
				case h.Attempt() <= 2:
					return errDown
				case mode == Manual:
					return h.Ack(ctx)
				}
				return nil
			})
			r.publish("1")
			r.pass(time.Minute)
			require.Equal(r, int64(1), s.Counts().Acknowledged)
		})
	}
}
