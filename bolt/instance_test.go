package bolt

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// The process ends and opens the file again, which may be of an earlier version. With the same
// instance it gets its messages at once, and of each instance the file keeps the last incarnation.
func TestInstanceOpensItsFileAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	records := func(b *Backend) (n int) {
		require.NoError(t, b.store.db.View(func(tx *bbolt.Tx) error {
			n = tx.Bucket([]byte("topics")).Bucket([]byte("orders")).Bucket([]byte("members")).Stats().KeyN
			return nil
		}))
		return n
	}
	for incarnation := range 4 {
		b := open(t, path, Options{})
		if incarnation == 0 {
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "0"}, {Topic: "orders", ID: "1"}}))
			require.NoError(t, b.store.db.Update(func(tx *bbolt.Tx) error { // as in a file of an earlier version
				return tx.Bucket([]byte("topics")).Bucket([]byte("orders")).DeleteBucket([]byte("members"))
			}))
		}
		src, err := b.Attach(t.Context(), backend.Config{
			Topic: "orders", Group: "g", Lease: time.Hour, Instance: "shop-0", Incarnation: fmt.Sprint(incarnation),
		})
		require.NoError(t, err)
		ds, err := src.Receive(t.Context(), 10, 0)
		require.NoError(t, err)
		require.Len(t, ds, 2)
		for i, d := range ds {
			require.Equal(t, fmt.Sprint(i), d.ID)
			require.Equal(t, incarnation+1, d.Attempt)
		}
		require.Equal(t, 1, records(b))
		if incarnation == 3 { // it holds nothing anymore, and does not come back
			require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
			_, err := b.Maintain(t.Context(), "orders", "g")
			require.NoError(t, err)
			require.Equal(t, 1, records(b), "its process runs")
			require.NoError(t, b.Close())
			b = open(t, path, Options{})
			_, err = b.Maintain(t.Context(), "orders", "g")
			require.NoError(t, err)
			require.Zero(t, records(b))
		}
		require.NoError(t, b.Close())
	}
}
