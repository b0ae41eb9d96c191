package engine

import (
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// attempts corrects the backend's count of attempts. If the backend counts nothing, failed
// counts the attempts. If the backend counts each receipt, spared counts the receipts
// without a run, to subtract them. To add to a map of maxCounted positions, attempts
// forgets another position. An event then has more attempts than its limit if failed forgot
// it, and fewer if spared did.
type attempts struct {
	mu     sync.Mutex
	failed map[string]int    // by position: the number of failed attempts
	spared map[string]spared // by position
	some   atomic.Bool       // spared was used
}

// spared counts the receipts of one message without a run, which are not attempts.
type spared struct {
	receipts int // less the attempts after the first of a receipt, see ledger.rest
	last     int // Delivery.Attempt of the last receipt without a run
}

const maxCounted = 1 << 16

// of returns the number of the attempt that begins with d, counted from 1.
func (a *attempts) of(d *backend.Delivery) int {
	if d.Attempt > 0 && !a.some.Load() {
		return d.Attempt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.Attempt > 0 {
		s := a.spared[d.Position]
		if s.receipts > 0 && d.Attempt <= s.last { // refunded, against Limits.Refund
			s = spared{s.receipts - 1, d.Attempt - 1}
			a.spared[d.Position] = s
		}
		return max(d.Attempt-s.receipts, 1)
	}
	return a.failed[d.Position] + 1
}

// note remembers the number of an attempt that failed. Only a backend that counts nothing
// needs this.
func (a *attempts) note(d *backend.Delivery, attempt int) {
	if d.Attempt > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	remember(&a.failed, d.Position, attempt)
}

// leave remembers the number of an attempt that failed and is left to its lease. A backend
// that counts receipts misses the attempts that were made while d rested.
func (a *attempts) leave(d *backend.Delivery, attempt int) {
	if attempt > d.Attempt {
		a.spare(d, attempt+1)
	}
	a.note(d, attempt)
}

// spare remembers that d was given back before the attempt with the given number. Only a
// backend that counts every receipt needs this.
func (a *attempts) spare(d *backend.Delivery, attempt int) {
	if d.Attempt == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	remember(&a.spared, d.Position, spared{d.Attempt + 1 - attempt, d.Attempt})
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

// forget drops the counts of an acknowledged event.
func (a *attempts) forget(d *backend.Delivery) {
	if d.Attempt > 0 && !a.some.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failed, d.Position)
	delete(a.spared, d.Position)
}
