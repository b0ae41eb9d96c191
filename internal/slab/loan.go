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

// Room returns ds with room for n more. Without ds it begins a loan; what is there in
// its room is of others.
func (l *Loan) Room(ds []backend.Delivery, n int) []backend.Delivery {
	if ds == nil {
		l.Return()
		l.lent = loans.Get().(*[]backend.Delivery)
		ds = (*l.lent)[:0]
	}
	return l.Lend(slices.Grow(ds, n))
}

// Lend notes that the slice which was begun has become ds, and returns it.
func (l *Loan) Lend(ds []backend.Delivery) []backend.Delivery {
	*l.lent = ds
	return ds
}
