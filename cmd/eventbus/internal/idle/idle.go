// Package idle detects that no work is left.
package idle

import (
	"context"
	"sync"
	"time"
)

// A Watch counts running work, and notes when some last began or ended.
type Watch struct {
	mu      sync.Mutex
	running int
	last    time.Time
}

// New returns a Watch whose idle time begins now.
func New() *Watch { return &Watch{last: time.Now()} }

// Begin notes a piece of work that runs until End.
func (w *Watch) Begin() { w.note(1) }

// End notes the end of a piece of work.
func (w *Watch) End() { w.note(-1) }

func (w *Watch) note(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.last = time.Now()
}

// left returns how much longer the watch must stay quiet to be idle for d.
func (w *Watch) left(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running > 0 {
		return d
	}
	return d - time.Since(w.last)
}

// askEvery is the pause between two questions to busy.
const askEvery = time.Second

// Wait returns nil once no work has run for d and busy reports that none is waiting. While
// busy reports true, d begins anew. If ctx ends first, Wait returns its cause.
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
