package worker

import (
	"context"
	"sync"
	"time"
)

// An IdleTimer counts the pieces of work that run, and records when the last one began or ended.
type IdleTimer struct {
	mu      sync.Mutex
	running int
	last    time.Time
}

// NewIdleTimer returns an IdleTimer whose idle time begins now.
func NewIdleTimer() *IdleTimer { return &IdleTimer{last: time.Now()} }

// Begin records the begin of a piece of work.
func (w *IdleTimer) Begin() { w.note(1) }

// End records the end of a piece of work.
func (w *IdleTimer) End() { w.note(-1) }

func (w *IdleTimer) note(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.last = time.Now()
}

// left returns how much longer no work must run, for the idle time to reach d.
func (w *IdleTimer) left(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running > 0 {
		return d
	}
	return d - time.Since(w.last)
}

// askEvery is the longest pause between two calls of the function busy in Wait.
const askEvery = time.Second

// Wait returns nil when no work has run for d and busy reports false: no work waits. When
// busy reports true, the idle time begins again. If ctx ends before, Wait returns its
// cause.
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
				w.note(0)
			case w.left(d) <= 0:
				return nil
			}
			next = min(d, askEvery)
		}
		timer.Reset(next)
	}
}
