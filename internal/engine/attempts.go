package engine

import (
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// attempts counts for a backend that does not. It remembers what failed, and
// forgets something if that is too much: what it forgets is tried more often.
type attempts struct {
	mu     sync.Mutex
	failed map[string]int // by position
}

const maxCounted = 1 << 16

// of returns which attempt a delivery is.
func (a *attempts) of(d *backend.Delivery) int {
	if d.Attempt > 0 {
		return d.Attempt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed[d.Position] + 1
}

// note remembers that an attempt came to nothing.
func (a *attempts) note(d *backend.Delivery, attempt int) {
	if d.Attempt > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = map[string]int{}
	}
	for p := range a.failed {
		if len(a.failed) < maxCounted {
			break
		}
		delete(a.failed, p)
	}
	a.failed[d.Position] = attempt
}

// forget drops what is settled.
func (a *attempts) forget(d *backend.Delivery) {
	if d.Attempt > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, d.Position)
}
