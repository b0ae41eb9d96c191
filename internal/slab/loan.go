package slab

import (
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Loan is the slice of deliveries that a source lends its caller until its next read.
// All loans take their memory from one pool, and a waiting source has none, so idle
// sources keep no memory. The caller must clear the deliveries, or their contents stay
// alive with the memory.
//
// A Loan has one user at a time. The zero value is ready to use.
type Loan struct{ lent *[]backend.Delivery }

var loans = sync.Pool{New: func() any { return new([]backend.Delivery) }}

// Return gives the slice back to the pool.
func (l *Loan) Return() {
	if l.lent != nil {
		loans.Put(l.lent)
		l.lent = nil
	}
}

// Room returns ds with capacity for n more deliveries. If ds is nil, Room begins a loan.
// The memory beyond the length may have old deliveries of other loans.
func (l *Loan) Room(ds []backend.Delivery, n int) []backend.Delivery {
	if ds == nil {
		l.Return()
		l.lent = loans.Get().(*[]backend.Delivery)
		ds = (*l.lent)[:0]
	}
	return l.Lend(slices.Grow(ds, n))
}

// Lend records that ds is now the slice of the loan, and returns ds.
func (l *Loan) Lend(ds []backend.Delivery) []backend.Delivery {
	*l.lent = ds
	return ds
}
