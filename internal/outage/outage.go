// Package outage shortens the waits after failed calls: when one call to a broker succeeds,
// the others try again.
package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Least is the shortest wait after a failed call. A success wakes no earlier, so that calls to
// a part of the broker that stays bad do not spin beside calls that succeed.
const Least = 100 * time.Millisecond

// An Outage joins the waits of one bus. The zero Outage is ready. Its methods are safe for
// concurrent use.
type Outage struct {
	awaited atomic.Bool // over is not nil

	mu   sync.Mutex
	over chan struct{} // closed by the next success
}

// Succeeded records that a call to the broker has succeeded. It wakes all that wait. If none
// waits, it costs one atomic load.
func (o *Outage) Succeeded() {
	if !o.awaited.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over != nil {
		close(o.over)
		o.over = nil
		o.awaited.Store(false)
	}
}

// Over returns a channel that is closed when the next call succeeds.
func (o *Outage) Over() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		o.over = make(chan struct{})
		o.awaited.Store(true)
	}
	return o.over
}

// Sleep waits after a failed call: for d, or until a call succeeds, but then at least for
// Least. It returns false if ctx ended first.
func (o *Outage) Sleep(ctx context.Context, d time.Duration) bool {
	over := o.Over()
	first := min(d, Least)
	t := time.NewTimer(first)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	t.Reset(d - first)
	select {
	case <-t.C:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}
