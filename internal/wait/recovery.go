package wait

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Least is the shortest wait after a failed call. A success doesn't end a wait before that, so
// calls to a part of the broker that keeps failing don't spin while other calls succeed.
const Least = 100 * time.Millisecond

// A Recovery ends the back-off of all callers when one call to the broker succeeds. A bus has one.
// The zero Recovery is ready to use, and its methods are safe for concurrent use.
type Recovery struct {
	awaited atomic.Bool // next is not nil

	mu   sync.Mutex
	next chan struct{} // closed by the next success
}

// Succeeded records that a call to the broker has succeeded, and wakes all waiting callers. If
// there are none, it costs one atomic load.
func (r *Recovery) Succeeded() {
	if !r.awaited.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		close(r.next)
		r.next = nil
		r.awaited.Store(false)
	}
}

// Next returns a channel that is closed when the next call succeeds.
func (r *Recovery) Next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
		r.awaited.Store(true)
	}
	return r.next
}

// Sleep waits after a failed call, for d or until a call succeeds, but in the latter case for at
// least [Least]. It returns false if ctx ended first.
func (r *Recovery) Sleep(ctx context.Context, d time.Duration) bool {
	next := r.Next()
	first := min(d, Least)
	if !Sleep(ctx, first) {
		return false
	}
	t := time.NewTimer(d - first)
	defer t.Stop()
	select {
	case <-t.C:
	case <-next:
	case <-ctx.Done():
		return false
	}
	return true
}
