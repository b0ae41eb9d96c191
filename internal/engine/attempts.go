package engine

import (
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// attempts corrects the backend's count of attempts, for events that come to this member
// again. Some backends count nothing. Others count each receipt, also one without a run, and
// miss the attempts that an event makes while it rests here. To add to maxCounted positions,
// attempts forgets another position. The backend's count then is valid again.
type attempts struct {
	mu   sync.Mutex
	next map[string]expected // by position
	some atomic.Bool         // next was used
}

// expected is the number of the attempt that begins with the receipt after a receipt.
type expected struct {
	receipt int // Delivery.Attempt
	attempt int
}

const maxCounted = 1 << 16

// of returns the number of the attempt that begins with d, counted from 1.
func (a *attempts) of(d *backend.Delivery) int {
	if !a.some.Load() {
		return max(d.Attempt, 1)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.next[d.Position]
	if first := d.Attempt == 1 && !d.Redelivered; !ok || first {
		delete(a.next, d.Position) // the topic or the group was made anew, or the group was reset
		return max(d.Attempt, 1)
	}
	if d.Attempt <= e.receipt { // the backend counts nothing, or has refunded against Limits.Refund
		e.receipt = d.Attempt - 1
		a.next[d.Position] = e
	}
	return e.attempt + d.Attempt - e.receipt - 1
}

// failed remembers the number of an attempt that has failed, if the backend misses it.
func (a *attempts) failed(d *backend.Delivery, attempt int) {
	if attempt > d.Attempt {
		a.expect(d, attempt+1)
	}
}

// expect remembers that the next receipt of d begins the given attempt.
func (a *attempts) expect(d *backend.Delivery, attempt int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = map[string]expected{}
	}
	for p := range a.next {
		if len(a.next) < maxCounted {
			break
		}
		delete(a.next, p)
	}
	a.next[d.Position] = expected{d.Attempt, attempt}
	a.some.Store(true)
}

// forget drops the count of an acknowledged event.
func (a *attempts) forget(d *backend.Delivery) {
	if !a.some.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.next, d.Position)
}
