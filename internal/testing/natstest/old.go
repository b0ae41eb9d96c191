package natstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Old returns the path of a nats-server of another version, such as "2.9":
// .bin/nats-server-2.9, or the system's nats-server if it has that version. Without one it
// skips the test.
func Old(t testing.TB, version string) string {
	t.Helper()
	candidates := []string{filepath.Join(filepath.Dir(binary(t)), "nats-server-"+version)}
	if path, err := exec.LookPath("nats-server"); err == nil {
		candidates = append(candidates, path)
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		said, err := exec.Command(path, "--version").Output() // nats-server: v2.9.10
		if err == nil && strings.HasPrefix(strings.TrimPrefix(string(said), "nats-server: v"), version+".") {
			return path
		}
	}
	t.Skipf("there is no nats-server %s", version)
	return ""
}

// StartOld is like Start with the program at path.
func StartOld(t testing.TB, path string, args ...string) *Server {
	t.Helper()
	s := newServer(t, args...)
	s.path = path
	s.Run()
	return s
}
