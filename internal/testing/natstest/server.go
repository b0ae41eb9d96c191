// Package natstest starts real nats-servers for tests, as processes that a test can kill and
// freeze.
package natstest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// startLimit bounds the start of a server. It is generous, because the machine may be busy.
const startLimit = 30 * time.Second

// A Server is a nats-server with JetStream on a free port of the loopback interface.
type Server struct {
	t    testing.TB
	name string // unique among all servers
	path string // the path of the nats-server program
	port int
	dir  string
	args []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

// Start starts a server with its own data; the server ends with the test. Without a nats-server
// the test is skipped, or fails if EVENTBUS_REQUIRE_BROKERS=1.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, args...)
	s.Run()
	return s
}

func newServer(t testing.TB, args ...string) *Server {
	t.Helper()
	port := freePort(t)
	s := &Server{t: t, name: fmt.Sprintf("s%d-%d", port, os.Getpid()), path: binary(t), port: port, dir: t.TempDir(), args: args}
	t.Cleanup(func() {
		s.signal(syscall.SIGKILL)
		if complaints := s.complaints(); t.Failed() && complaints != "" {
			t.Logf("the nats-server on port %d complained:\n%s", s.port, complaints)
		}
	})
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := testproc.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// binary returns the path of nats-server: the one that `make` has built in .bin at the top of the
// checkout, or else the one in PATH. Without either the test is skipped, or fails if
// EVENTBUS_REQUIRE_BROKERS=1.
func binary(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd() // the folder of the test's package
	for err == nil {
		path := filepath.Join(dir, ".bin", "nats-server")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	if path, err := exec.LookPath("nats-server"); err == nil {
		return path
	}
	const missing = "natstest: nats-server is neither built nor installed; make .bin/nats-server builds it"
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Addr returns host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// URL returns the server's URL.
func (s *Server) URL() string { return "nats://" + s.Addr() }

// Dir returns the folder of the server's data.
func (s *Server) Dir() string { return s.dir }

// Name returns the name that the server tells clients.
func (s *Server) Name() string { return s.name }

// Run starts the server again on its data and its port, and returns when JetStream answers.
func (s *Server) Run() {
	s.t.Helper()
	s.start()
	s.await()
}

func (s *Server) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{"-a", "127.0.0.1", "-p", strconv.Itoa(s.port), "-js", "-sd", s.dir, "-l", s.log(), "--server_name", s.name}, s.args...)
	cmd := exec.Command(s.path, args...)
	if err := testproc.Start(cmd); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // its exit status only names the signal
		close(ended)
	}()
}

// await waits until JetStream answers.
func (s *Server) await() {
	s.t.Helper()
	deadline := time.Now().Add(startLimit)
	for {
		err := s.answers()
		if err == nil {
			return
		}
		select {
		case <-s.ended:
			s.t.Fatalf("natstest: the server on port %d has ended; its log:\n%s", s.port, s.tail())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("natstest: %s does not answer: %v; its log:\n%s", s.Addr(), err, s.tail())
		}
	}
}

func (s *Server) answers() error {
	conn, err := natsgo.Connect(s.URL(), natsgo.Timeout(time.Second), natsgo.NoReconnect(), natsgo.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer conn.Close()
	if name := conn.ConnectedServerName(); name != s.name {
		return fmt.Errorf("another server answers: %s", name)
	}
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

// Kill ends the server without warning and waits for its end.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop shuts the server down cleanly and waits for its end.
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
	if sig != syscall.SIGKILL {
		_ = s.cmd.Process.Signal(testproc.Thaw) // a frozen process handles no other signal
		last := time.AfterFunc(startLimit, func() { _ = s.cmd.Process.Kill() })
		defer last.Stop()
	}
	<-s.ended
	s.cmd = nil
}

// Freeze stops the process until thaw is called; its connections stay open. Calling thaw again,
// or after the process has ended, has no effect.
func (s *Server) Freeze() (thaw func()) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatalf("natstest: %s does not run and cannot be frozen", s.Addr())
	}
	frozen := s.cmd.Process
	_ = frozen.Signal(testproc.Freeze)
	return func() { _ = frozen.Signal(testproc.Thaw) }
}

// Runs reports whether the process runs.
func (s *Server) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd != nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// complaints returns the warnings and errors in the log.
func (s *Server) complaints() string {
	var lines strings.Builder
	for line := range strings.Lines(s.tail()) {
		if strings.Contains(line, " [") && !strings.Contains(line, " [INF] ") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// tail returns the end of the log.
func (s *Server) tail() string {
	f, err := os.Open(s.log())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const n = 3000
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(size-n, 0), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// StartConfigured starts a server with text as its configuration file, for users and TLS. The
// server ends with the test. [Server.Configure] changes the text.
func StartConfigured(t testing.TB, text string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = []string{"-c", filepath.Join(s.dir, "nats.conf")}
	s.Configure(text)
	return s
}

// Configure restarts the server with another configuration file. It returns when the server
// accepts connections, even if it requires a login.
func (s *Server) Configure(text string) {
	s.t.Helper()
	s.Kill()
	s.write(text)
	s.start()
	for deadline := time.Now().Add(startLimit); !s.greets(); <-time.After(10 * time.Millisecond) {
		if !s.alive() || time.Now().After(deadline) {
			s.t.Fatalf("natstest: the server on port %d does not serve; its log:\n%s", s.port, s.tail())
		}
	}
}

// Reload makes a running server of [StartConfigured] load another configuration file without a
// restart. The server decides which settings it can change that way.
func (s *Server) Reload(text string) {
	s.t.Helper()
	s.write(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// write writes the configuration file, with the name of the server, which must stay the same at
// a reload.
func (s *Server) write(text string) {
	s.t.Helper()
	text = "server_name: " + s.name + "\n" + text
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(text), 0o600); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// greets reports whether this server, and not another one on its port, announces JetStream to a
// new connection, which it does before any login.
func (s *Server) greets() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	var info struct {
		Name      string `json:"server_name"`
		JetStream bool   `json:"jetstream"`
	}
	text, greeting := strings.CutPrefix(line, "INFO ")
	return err == nil && greeting && json.Unmarshal([]byte(text), &info) == nil && info.JetStream && info.Name == s.name
}

func (s *Server) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Old returns the path of a nats-server of another version, such as "2.9":
// .bin/nats-server-2.9, or the system's nats-server if it has that version. Without one the
// test is skipped.
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
