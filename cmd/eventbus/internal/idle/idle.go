// Package idle detects that no work is left.
package idle

import (
	"context"
	"sync"
	"time"
)

// A Watch counts the pieces of work that run, and records when the last one began or ended.
type Watch struct {
	mu      sync.Mutex
	running int
	last    time.Time
}

// New returns a Watch whose idle time begins now.
func New() *Watch { return &Watch{last: time.Now()} }

// Begin records the begin of a piece of work.
func (w *Watch) Begin() { w.note(1) }

// End records the end of a piece of work.
func (w *Watch) End() { w.note(-1) }

func (w *Watch) note(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.last = time.Now()
}

// left returns how much longer no work must run, for the idle time to reach d.
func (w *Watch) left(d time.Duration) time.Duration {
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
func (w *Watch) Wait(ctx context.Context, d time.Duration, busy func(context.Context) bool) error {
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
