package bolt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A removed message makes room in a full topic, and counts neither in Depth nor in Oldest.
func TestRemovedMessagesMakeRoom(t *testing.T) {
	b := open(t, newFile(t), Options{MaxMessages: 3})
	_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	ms := []*backend.Message{{Topic: "orders"}, {Topic: "orders"}, {Topic: "orders"}}
	require.NoError(t, b.Publish(t.Context(), ms))
	require.ErrorIs(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}), backend.ErrFull)
	for _, gone := range []int{1, 0} { // the first leaves a gap, and the second leaves none
		require.NoError(t, b.Remove(t.Context(), "orders", []string{ms[gone].Position, ms[gone].Position}))
		stats, err := b.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Equal(t, int64(2), stats.Depth)
		require.NotZero(t, stats.Oldest)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
		require.ErrorIs(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}), backend.ErrFull)
	}
}
