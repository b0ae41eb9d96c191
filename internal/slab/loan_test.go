package slab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/slab"
)

// What two have at the same time is never the same.
func TestLoansAreApart(t *testing.T) {
	t.Parallel()
	var one, other slab.Loan
	for range 100 {
		a, b := one.Lend(one.Room(nil, 3)[:3]), other.Lend(other.Room(nil, 2)[:2])
		require.NotSame(t, &a[0], &b[0])
		one.Return()
		one.Return() // for nothing
		c := one.Room(nil, 1)[:1]
		require.NotSame(t, &b[0], &c[0])
		other.Return()
	}
}
