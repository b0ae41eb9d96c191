package redistest

import (
	"os"
	"sync"
	"testing"
)

var (
	commonMu sync.Mutex
	common   *process // the server of all tests of this process that ask for it
)

// Shared returns the server that the tests of one process share, which is started
// with the first that asks and ends with the process. Nobody empties it: tests use
// names of their own, and must not kill or freeze it.
func Shared(t testing.TB) *Server {
	t.Helper()
	path := binary(t)
	commonMu.Lock()
	defer commonMu.Unlock()
	if common == nil {
		p := &process{binary: path, settings: settings{shared: true}}
		var err error
		if p.dir, err = os.MkdirTemp("", "redistest"); err != nil { //nolint:usetesting // it outlives the test
			t.Fatalf("redistest: %v", err)
		}
		// Its files stay open, and there is nobody to remove them later.
		defer func() { _ = os.RemoveAll(p.dir) }()
		if err := p.create(); err != nil {
			t.Fatal(err)
		}
		common = p
	}
	s := &Server{t: t, process: common}
	t.Cleanup(func() { s.logTail(t) })
	return s
}
