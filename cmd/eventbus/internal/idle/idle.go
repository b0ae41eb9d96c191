// Package idle notices that there is nothing left to do.
package idle

import (
	"context"
	"sync"
	"time"
)

// A Watch knows what runs, and when something last did.
type Watch struct {
	mu      sync.Mutex
	running int
	last    time.Time
}

// New returns a Watch that takes now for the last time.
func New() *Watch { return &Watch{last: time.Now()} }

// Begin notes that something is being done, until End.
func (w *Watch) Begin() { w.note(1) }

// End notes that something is done.
func (w *Watch) End() { w.note(-1) }

func (w *Watch) note(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.last = time.Now()
}

// left is how long it must stay as it is to be idle for d.
func (w *Watch) left(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running > 0 {
		return d
	}
	return d - time.Since(w.last)
}

// askEvery is how often busy is asked once it is.
const askEvery = time.Second

// Wait returns nil when nothing has run for d and busy says that nothing waits
// to, or else the cause of ctx. While busy says yes the time begins anew.
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
