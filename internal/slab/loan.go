package slab

import (
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// A Loan is the slice of deliveries that a source lends its caller until the next read. All
// loans take their memory from one pool, and a waiting source has none, so idle sources keep no
// memory. The caller must clear the deliveries, because otherwise the memory keeps their
// contents alive.
//
// A Loan is not safe for concurrent use. The zero value is ready to use.
type Loan struct{ lent *[]backend.Delivery }

var loans = sync.Pool{New: func() any { return new([]backend.Delivery) }}

// Return returns the slice to the pool.
func (l *Loan) Return() {
	if l.lent != nil {
		loans.Put(l.lent)
		l.lent = nil
	}
}

// Room returns ds with capacity for n more deliveries. If ds is nil, a loan begins. The memory
// beyond the length may contain old deliveries of other loans.
func (l *Loan) Room(ds []backend.Delivery, n int) []backend.Delivery {
	if ds == nil {
		l.Return()
		l.lent = loans.Get().(*[]backend.Delivery)
		ds = (*l.lent)[:0]
	}
	return l.Lend(slices.Grow(ds, n))
}

// Lend records that the loan's slice is now ds, and returns ds.
func (l *Loan) Lend(ds []backend.Delivery) []backend.Delivery {
	*l.lent = ds
	return ds
}
