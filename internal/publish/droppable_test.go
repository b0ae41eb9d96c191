package publish

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Calls whose tries have failed are dropped in the order in which they entered.
func TestResumedCallsKeepTheirOrder(t *testing.T) {
	var ts droppables
	first, second, third := ts.add(size{1, 1}), ts.add(size{1, 1}), ts.add(size{1, 1})
	ts.withdraw(first)
	ts.withdraw(second)
	ts.resume(first)
	ts.resume(second)
	for _, next := range []*droppable{first, second, third} {
		require.False(t, next.isDropped())
		ts.dropOldest()
		require.True(t, next.isDropped())
	}
}
