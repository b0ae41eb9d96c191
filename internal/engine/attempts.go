package engine

import (
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// attempts counts for a backend that does not count itself: attempts, or the receipts that
// are not attempts. It keeps 65,536 positions of each kind and then forgets some. An event
// whose attempts it forgets is tried more often. An event whose spared receipts it forgets
// is tried less often.
type attempts struct {
	mu     sync.Mutex
	failed map[string]int    // by position: attempts that failed
	spared map[string]spared // by position
	some   atomic.Bool       // something was spared
}

// spared counts the receipts of a message that do not count.
type spared struct {
	receipts int
	last     int // the attempt of the last one, as the backend counts
}

const maxCounted = 1 << 16

// of returns the number of the attempt that d is.
func (a *attempts) of(d *backend.Delivery) int {
	if d.Attempt > 0 && !a.some.Load() {
		return d.Attempt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.Attempt > 0 {
		s := a.spared[d.Position]
		if s.receipts > 0 && d.Attempt <= s.last { // the backend has not counted it, and does not say so in its Limits
			s = spared{s.receipts - 1, d.Attempt - 1}
			a.spared[d.Position] = s
		}
		return max(d.Attempt-s.receipts, 1)
	}
	return a.failed[d.Position] + 1
}

// note remembers that an attempt failed.
func (a *attempts) note(d *backend.Delivery, attempt int) {
	if d.Attempt > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	remember(&a.failed, d.Position, attempt)
}

// spare remembers a receipt that is not an attempt, for a backend that counts every
// receipt.
func (a *attempts) spare(d *backend.Delivery) {
	if d.Attempt == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	remember(&a.spared, d.Position, spared{a.spared[d.Position].receipts + 1, d.Attempt})
	a.some.Store(true)
}

func remember[N any](counts *map[string]N, position string, n N) {
	if *counts == nil {
		*counts = map[string]N{}
	}
	for p := range *counts {
		if len(*counts) < maxCounted {
			break
		}
		delete(*counts, p)
	}
	(*counts)[position] = n
}

// forget drops the counts of a settled event.
func (a *attempts) forget(d *backend.Delivery) {
	if d.Attempt > 0 && !a.some.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, d.Position)
	delete(a.spared, d.Position)
}
