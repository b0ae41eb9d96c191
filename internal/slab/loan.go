package slab

import (
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Loan is the slice of deliveries that a source lends until its next read. All
// loans have their memory from one pool, and a source that waits for its next read
// has none: so idle ones keep nothing. Who was lent deliveries clears them, or what
// they refer to is kept as long as the memory.
//
// One goroutine at a time uses it. The zero value is ready to use.
type Loan struct{ lent *[]backend.Delivery }

var loans = sync.Pool{New: func() any { return new([]backend.Delivery) }}

// Return takes the slice back.
func (l *Loan) Return() {
	if l.lent != nil {
		loans.Put(l.lent)
		l.lent = nil
	}
}

// Take returns an empty slice, with room for n. What is there in its room is of
// others.
func (l *Loan) Take(n int) []backend.Delivery {
	l.Return()
	l.lent = loans.Get().(*[]backend.Delivery)
	return l.Lend(slices.Grow((*l.lent)[:0], n))
}

// Lend notes that the slice which was taken has become ds, and returns it.
func (l *Loan) Lend(ds []backend.Delivery) []backend.Delivery {
	*l.lent = ds
	return ds
}
