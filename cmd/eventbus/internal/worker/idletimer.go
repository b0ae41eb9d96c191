package worker

import (
	"context"
	"sync"
	"time"
)

// An IdleTimer detects that no work is left. It counts the running pieces of work and remembers when the last one began or
// ended.
type IdleTimer struct {
	mu      sync.Mutex
	running int
	last    time.Time
}

// NewIdleTimer returns an IdleTimer that is idle from now on.
func NewIdleTimer() *IdleTimer { return &IdleTimer{last: time.Now()} }

// Begin records that a piece of work begins.
func (w *IdleTimer) Begin() { w.record(1) }

// End records that a piece of work has ended.
func (w *IdleTimer) End() { w.record(-1) }

func (w *IdleTimer) record(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.last = time.Now()
}

// left returns how much longer there must be no work for the idle time to reach d.
func (w *IdleTimer) left(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running > 0 {
		return d
	}
	return d - time.Since(w.last)
}

// askEvery is the longest pause between two calls of busy in Wait.
const askEvery = time.Second

// Wait returns nil when no work has run for d and busy reports that none is waiting. When busy reports true, the idle time
// starts over. If ctx ends first, Wait returns its cause.
func (w *IdleTimer) Wait(ctx context.Context, d time.Duration, busy func(context.Context) bool) error {
	timer := time.NewTimer(w.left(d))
	defer timer.Stop()
	asking := false
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next := w.left(d)
		if asking = asking || next <= 0; asking {
			switch {
			case busy(ctx):
				w.record(0)
			case w.left(d) <= 0:
				return nil
			}
			next = min(d, askEvery)
		}
		timer.Reset(next)
	}
}
