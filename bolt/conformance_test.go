package bolt

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Suite{
		Name:       "bolt",
		New:        func(t *testing.T) backend.Backend { return open(t, newFile(t), Options{}) },
		NewBounded: func(t *testing.T, n int) backend.Backend { return open(t, newFile(t), Options{MaxMessages: n}) },
		Lease:      30 * time.Second,
		Around:     synctest.Test,
		Parallel:   true,
		Peer:       peer,
		Faults: conformance.Faults{
			Restart: func(t *testing.T, b backend.Backend) { b.(*Backend).store.restart(t, false) },
			Kill:    func(t *testing.T, b backend.Backend) { b.(*Backend).store.restart(t, true) },
			Lose:    lose,
		},
	})
}

// newFile returns the path of a file in a folder of its own.
func newFile(t *testing.T) string { return filepath.Join(t.TempDir(), "events.db") }

// open returns a backend that the test closes.
func open(t *testing.T, path string, o Options) *Backend {
	b, err := Open(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// peer returns another backend on the file of b.
func peer(t *testing.T, b backend.Backend) backend.Backend {
	return open(t, b.(*Backend).store.path, Options{})
}

// restart closes the file and opens it again, while no transaction runs. With kill, the file then
// has only the data that it had before it was closed.
func (s *store) restart(t *testing.T, kill bool) {
	openLock <- struct{}{}
	defer func() { <-openLock }()
	s.open.Lock()
	defer s.open.Unlock()
	content, err := os.ReadFile(s.path)
	require.NoError(t, err)
	require.NoError(t, s.db.Close())
	if kill {
		require.NoError(t, os.WriteFile(s.path, content, 0o600))
	}
	require.NoError(t, s.openFile(time.Second))
}

// lose deletes a stored body. Members are not told.
func lose(t *testing.T, b backend.Backend, name, position string) {
	require.NoError(t, backend.Remove(t.Context(), b, name, []string{position}))
}
