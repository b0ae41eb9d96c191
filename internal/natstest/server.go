// Package natstest starts real nats-servers for tests, in processes of their own
// that can be killed and frozen.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Server is a nats-server with JetStream on a free port of the loopback.
type Server struct {
	t    testing.TB
	port int
	dir  string
	args []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Start starts a server with data of its own, which ends with the test.
func Start(t testing.TB, args ...string) *Server {
	s := newServer(t, args...)
	s.Run()
	return s
}

func newServer(t testing.TB, args ...string) *Server {
	s := &Server{t: t, port: freePort(t), dir: t.TempDir(), args: args}
	t.Cleanup(func() { s.signal(syscall.SIGKILL) })
	return s
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// binary is what `make` has built.
func binary(t testing.TB) string {
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", ".bin", "nats-server")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") == "1" {
		t.Fatalf("natstest: %s is missing: make .bin/nats-server", path)
	}
	t.Skipf("%s is missing: make .bin/nats-server", path)
	return ""
}

// Addr is host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// URL is that of the server.
func (s *Server) URL() string { return "nats://" + s.Addr() }

// Run starts the server again on its data and its port, and returns when
// JetStream answers.
func (s *Server) Run() {
	s.t.Helper()
	s.start()
	s.await()
}

func (s *Server) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{"-a", "127.0.0.1", "-p", strconv.Itoa(s.port), "-js", "-sd", s.dir, "-l", filepath.Join(s.dir, "log")}, s.args...)
	s.cmd = exec.Command(binary(s.t), args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// await returns when JetStream answers.
func (s *Server) await() {
	s.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := s.answers()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("natstest: %s does not answer: %v", s.Addr(), err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *Server) answers() error {
	conn, err := natsgo.Connect(s.URL(), natsgo.Timeout(time.Second), natsgo.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	if _, err = js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return nil
}

// Kill ends the server without a warning.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop lets the server end in good order.
func (s *Server) Stop() { s.signal(syscall.SIGTERM) }

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("natstest: %v", err)
	}
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
}

// Runs reports whether the process is there.
func (s *Server) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd != nil
}
