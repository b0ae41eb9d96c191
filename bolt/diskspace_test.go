//go:build linux || darwin

package bolt

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Publish leaves MinFree, and says that there is no room. In the meantime, stored messages are
// handled.
func TestADiskThatIsNearlyFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	b, err := Open(t.Context(), path, Options{MinFree: 1 << 60})
	require.NoError(t, err)
	defer b.Close()
	usual, err := Open(t.Context(), path, Options{})
	require.NoError(t, err)
	defer usual.Close()
	s, err := b.Attach(t.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, usual.Publish(t.Context(), []*backend.Message{{Topic: "t", ID: "1"}, {Topic: "t", ID: "2"}}))
	err = b.Publish(t.Context(), []*backend.Message{{Topic: "t", ID: "3"}, {Topic: "t", ID: "4"}})
	for i := range 2 {
		require.ErrorIs(t, backend.ErrorAt(err, i), backend.ErrFull)
	}
	ds, err := s.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	_, err = b.Maintain(t.Context(), "t", "g")
	require.NoError(t, err)
	stats, err := b.Stats(t.Context(), "t", "g")
	require.NoError(t, err)
	require.Zero(t, stats.Depth)
}
