package slab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/slab"
)

// Two loans never share memory at the same time.
func TestLoansAreApart(t *testing.T) {
	t.Parallel()
	var one, other slab.Loan
	for range 100 {
		a, b := one.Lend(one.Room(nil, 3)[:3]), other.Lend(other.Room(nil, 2)[:2])
		require.NotSame(t, &a[0], &b[0])
		one.Return()
		one.Return() // a second Return does nothing
		c := one.Room(nil, 1)[:1]
		require.NotSame(t, &b[0], &c[0])
		other.Return()
	}
}
