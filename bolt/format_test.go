package bolt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A file keeps the format that earlier programs read, until it has data that they would not obey.
func TestTheFormatGrowsWhenItMust(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(t *testing.T, b *Backend) error
		want uint64
	}{
		"plain": {func(t *testing.T, b *Backend) error {
			settleAll(t, attach(t, b, backend.Config{Group: "g"}))
			_, err := b.Declare(t.Context(), "orders", backend.Declaration{Replace: true})
			require.NoError(t, err)
			require.NoError(t, b.ResetGroup(t.Context(), "orders", "g", ""))
			return b.Resume(t.Context(), "orders", "g")
		}, oldest},
		"settings": {func(t *testing.T, b *Backend) error {
			_, err := b.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{MaxMessages: 1}})
			return err
		}, newest},
		"pause": {func(t *testing.T, b *Backend) error {
			attach(t, b, backend.Config{Group: "g"})
			return b.Pause(t.Context(), "orders", "g", backend.Pause{})
		}, newest},
		"ephemeral": {func(t *testing.T, b *Backend) error {
			return attach(t, b, backend.Config{Group: "g", Ephemeral: true}).Close()
		}, newest},
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			b := open(t, path, Options{})
			require.NoError(t, b.Publish(t.Context(), numbered("", 2, 0)))
			require.NoError(t, row.use(t, b))
			require.NoError(t, b.Close())
			b = open(t, path, Options{})
			require.NoError(t, b.view(t.Context(), "test", func(tx *txn) error {
				require.Equal(t, row.want, tx.format())
				return nil
			}))
		})
	}
}
