package redistest

import (
	"os"
	"sync"
	"testing"
)

var (
	commonMu sync.Mutex
	common   *process // the shared server, nil before the first Shared
)

// Shared returns the server that all tests of one process share. The first call starts the
// server, and it ends with the process. It is never emptied: a test uses names of its own,
// and must not kill or freeze it.
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
		// This removes the files now, because no later code would. The server keeps the
		// files open, and so keeps their contents.
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
