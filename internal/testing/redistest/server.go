// Package redistest starts real redis-servers for tests: alone, as a cluster, or
// under sentinels, each a process that can be killed, frozen and started again.
// They end with the test.
package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// startLimit bounds how long a server may take until it answers, on a machine
// that is busy with many others.
const startLimit = 30 * time.Second

// Server is one redis-server on a free port of 127.0.0.1. Its methods may be
// called by many goroutines; what fails ends the test that started it.
type Server struct {
	t testing.TB
	*process
}

// process is what servers have in common with the one that is shared.
type process struct {
	settings
	binary string
	port   int
	dir    string
	log    *os.File

	mu    sync.Mutex
	cmd   *exec.Cmd // nil while it does not run
	alive *os.File  // ends when the process does
}

// Start starts a redis-server of its own, which keeps all that it has answered when
// it is killed, and returns when it answers. Without a redis-server on
// the machine the test is skipped, or fails if EVENTBUS_REQUIRE_BROKERS=1.
func Start(t testing.TB, o ...Option) *Server {
	t.Helper()
	s := &Server{t: t, process: &process{binary: binary(t), dir: t.TempDir()}}
	for _, f := range o {
		f(&s.settings)
	}
	if s.tls && s.certs == nil {
		s.certs = Certificates(t)
		s.pair = s.certs.Server
	}
	if err := s.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.logTail(t)
		s.Kill()
		s.log.Close()
		if s.socketDir != "" {
			_ = os.RemoveAll(s.socketDir)
		}
	})
	return s
}

// binary finds redis-server.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const missing = "redistest: redis-server is not installed; scripts/brokers.sh installs it"
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// create chooses a port and starts the server, on another if somebody was faster.
func (p *process) create() error {
	var err error
	if p.log, err = os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if p.socket {
		// A path of its own, because a test's folder is often longer than the 108
		// bytes a socket may have.
		if p.socketDir, err = os.MkdirTemp("", "redistest"); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	for range 20 {
		if p.port, err = testproc.Port(p.further()...); err != nil {
			return err
		}
		if err = p.configure(); err != nil {
			return err
		}
		if err = p.run(); err == nil || !p.portTaken() {
			return err
		}
	}
	return err
}

// further is how much further up it listens too.
func (p *process) further() []int {
	if p.clustered {
		return []int{10000} // for the other nodes
	}
	return nil
}

// run starts the process and waits until it answers.
func (p *process) run() error {
	alive, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer theirs.Close()
	args := []string{filepath.Join(p.dir, "redis.conf")}
	if p.sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command(p.binary, append(args, p.args...)...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.ExtraFiles = []*os.File{theirs}
	if err := testproc.Start(cmd); err != nil {
		alive.Close()
		return fmt.Errorf("redistest: start: %w", err)
	}
	p.cmd, p.alive = cmd, alive
	if err := p.ready(); err != nil {
		p.end(syscall.SIGKILL)
		return fmt.Errorf("redistest: %s does not answer on port %d: %w; its log:\n%s", p.binary, p.port, err, p.tail(2000))
	}
	return nil
}

// ready waits until the process answers.
func (p *process) ready() error {
	limit := time.Now().Add(startLimit)
	for {
		err := p.ping()
		if err == nil {
			return nil
		}
		if time.Now().After(limit) {
			return err
		}
		// This waits for the next attempt, and sees the process end.
		_ = p.alive.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		if _, ended := p.alive.Read(make([]byte, 1)); ended == io.EOF {
			return fmt.Errorf("it has ended")
		}
	}
}

// end sends a signal and waits until the process is gone.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	if sig != syscall.SIGKILL {
		// A frozen process hears nothing else.
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		last := time.AfterFunc(startLimit, func() { _ = p.cmd.Process.Kill() })
		defer last.Stop()
	}
	_ = p.cmd.Wait() // its exit status says which signal it was
	p.alive.Close()
	p.cmd, p.alive = nil, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.addr() }

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// URL is the address as a Redis URL, without a user.
func (s *Server) URL() string {
	if s.tls {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Socket is the path of the unix socket that the server listens on too, if it was
// started with [Socket].
func (s *Server) Socket() string {
	if !s.socket {
		return ""
	}
	return filepath.Join(s.socketDir, "redis.sock")
}

// Certificates are those of a server started with [TLS] or [TLSWith].
func (s *Server) Certificates() *Certs { return s.certs }

// Client is a client to prepare and to inspect the server with. It is closed when
// the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	o := &redis.Options{Addr: s.Addr(), Protocol: 2, DisableIdentity: true, DialerRetries: 1, Password: s.password()}
	if s.tls {
		o.TLSConfig = s.certs.Config()
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// Dir is where the server keeps its data.
func (s *Server) Dir() string { return s.dir }

// Kill ends the server without a warning and waits until it is gone. It does
// nothing if it does not run.
func (s *Server) Kill() { s.stop(syscall.SIGKILL) }

// Stop lets the server end in good order, its data written, and waits until it is
// gone.
func (s *Server) Stop() { s.stop(syscall.SIGTERM) }

func (s *Server) stop(sig syscall.Signal) {
	s.own("end")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(sig)
}

// Run starts the server again on its data and its port, and returns when it has
// loaded them and answers.
func (s *Server) Run() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.t.Fatalf("redistest: %s runs already", s.Addr())
	}
	limit := time.Now().Add(startLimit)
	for {
		err := s.run()
		if err == nil {
			return
		}
		// A connection may hold the port for a moment.
		if !s.portTaken() || time.Now().After(limit) {
			s.t.Fatal(err)
		}
	}
}

// Freeze stops the process, its connections open, until thaw is called. Thawing
// twice does no harm, nor does it after the process has ended.
func (s *Server) Freeze() (thaw func()) {
	s.own("freeze")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatalf("redistest: %s does not run and cannot be frozen", s.Addr())
	}
	frozen := s.cmd.Process
	_ = frozen.Signal(syscall.SIGSTOP)
	return func() { _ = frozen.Signal(syscall.SIGCONT) }
}

// own panics for the server that all tests share.
func (s *Server) own(verb string) {
	if s.shared {
		panic("redistest: a test must not " + verb + " the server that others share")
	}
}

// User makes an account on the server with these ACL rules (~keys, &channels,
// +commands), or replaces it: what an earlier one might do is gone. It survives a
// restart.
func (s *Server) User(t testing.TB, name, password string, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">" + password}
	for _, r := range rules {
		args = append(args, r)
	}
	c := s.Client(t)
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("redistest: user %s: %v", name, err)
	}
	s.saveUsers(t, c)
}

// saveUsers writes the accounts to their file.
func (s *Server) saveUsers(t testing.TB, c *redis.Client) {
	t.Helper()
	if s.password() != "" || s.shared {
		return
	}
	if err := c.Do(t.Context(), "ACL", "SAVE").Err(); err != nil {
		t.Fatalf("redistest: save users: %v", err)
	}
}

// Revoke takes an account away; its connections are closed by the server.
func (s *Server) Revoke(name string) {
	s.t.Helper()
	c := s.Client(s.t)
	if err := c.Do(s.t.Context(), "ACL", "DELUSER", name).Err(); err != nil {
		s.t.Fatalf("redistest: revoke %s: %v", name, err)
	}
	s.saveUsers(s.t, c)
}

// Log is the end of what the server has logged.
func (s *Server) Log() string { return s.tail(8000) }

// tail is the end of the log, from the beginning of a line.
func (p *process) tail(n int64) string {
	size, err := p.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(n, size))
	read, _ := p.log.ReadAt(b, size-int64(len(b)))
	text := string(b[:read])
	if size > n {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// logTail shows the log with a test that fails.
func (s *Server) logTail(t testing.TB) {
	if t.Failed() {
		t.Logf("log of the redis-server on port %d:\n%s", s.port, s.tail(3000))
	}
}

func (p *process) portTaken() bool { return strings.Contains(p.tail(1000), "Address already in use") }

// password is the one that all clients need, if Args sets one.
func (p *process) password() string {
	if i := slices.Index(p.args, "--requirepass"); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}
