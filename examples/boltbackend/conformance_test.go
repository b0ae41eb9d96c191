package boltbackend

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Suite{
		Name:       "boltbackend",
		New:        func(t *testing.T) backend.Backend { return open(t, Options{}) },
		NewBounded: func(t *testing.T, n int) backend.Backend { return open(t, Options{MaxMessages: uint64(n)}) },
		Lease:      30 * time.Second,
		Around:     synctest.Test,
		Parallel:   true,
		Peer:       func(t *testing.T, b backend.Backend) backend.Backend { return on(t, b.(*Backend).store) },
		Faults: conformance.Faults{
			Restart: func(t *testing.T, b backend.Backend) { b.(*Backend).store.reopen(t, reopenClosed) },
			Kill:    func(t *testing.T, b backend.Backend) { b.(*Backend).store.reopen(t, reopenCopy) },
			Lose:    lose,
		},
	})
}

// open returns a backend on a store of its own, in a folder of its own.
func open(t *testing.T, o Options) *Backend {
	return openAt(t, filepath.Join(t.TempDir(), "events.db"), o)
}

func openAt(t *testing.T, path string, o Options) *Backend {
	s, err := OpenStore(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return on(t, s)
}

// on returns a backend on a store that may have others.
func on(t *testing.T, s *Store) *Backend {
	b := New(s)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// reopen gives the store another handle, while no transaction runs.
func (s *Store) reopen(t *testing.T, again func(t *testing.T, old *bolt.DB) *bolt.DB) {
	s.open.Lock()
	defer s.open.Unlock()
	s.db = again(t, s.db)
}

// reopenClosed ends the broker in good order: it closes the file and opens it again.
func reopenClosed(t *testing.T, old *bolt.DB) *bolt.DB {
	path := old.Path()
	require.NoError(t, old.Close())
	return openDB(t, path)
}

// reopenCopy ends the broker without a warning: it opens a copy of the file as it is.
// The copy does not have data that the old handle had only in memory.
func reopenCopy(t *testing.T, old *bolt.DB) *bolt.DB {
	content, err := os.ReadFile(old.Path())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	require.NoError(t, old.Close())
	return openDB(t, path)
}

func openDB(t *testing.T, path string) *bolt.DB {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	require.NoError(t, err)
	return db
}

// lose deletes a stored body. Members are not told.
func lose(t *testing.T, b backend.Backend, name, position string) {
	require.NoError(t, backend.Remove(t.Context(), b, name, []string{position}))
}
