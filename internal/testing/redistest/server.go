// Package redistest starts real redis-servers for tests: single servers, clusters, and masters
// with sentinels. Each server is a process that a test can kill, freeze and restart. All servers
// end with their test.
package redistest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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

// startLimit bounds the start of a server, on a busy machine.
const startLimit = 30 * time.Second

// Server is one redis-server on a free port of 127.0.0.1. It is safe for concurrent use. A
// failure ends the test that started it.
type Server struct {
	t testing.TB
	*process
}

// process is what a test's own server and the server of [Shared] have in common.
type process struct {
	settings
	binary string
	port   int
	dir    string
	log    *os.File

	mu    sync.Mutex
	cmd   *exec.Cmd // nil while it does not run
	alive *os.File  // a pipe that ends when the process ends
}

// Start starts a redis-server for one test, and returns when it answers. The server keeps all
// data that it has confirmed, even when it is killed. If redis-server is not installed, the test
// is skipped, or fails if EVENTBUS_REQUIRE_BROKERS=1.
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

// binary returns the path of redis-server.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const missing = "redistest: redis-server is not installed; make services installs it"
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// create starts the server on a free port. If another process takes the port first, it
// tries another one.
func (p *process) create() error {
	var err error
	if p.log, err = os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if p.socket {
		// The socket has a folder of its own, because the path of a test's folder is often
		// longer than the 108 bytes of a socket's path.
		if p.socketDir, err = os.MkdirTemp("", "redistest"); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	for range 20 {
		if p.port, err = testproc.Port(p.extraPorts()...); err != nil {
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

// extraPorts returns the other ports that the server listens on, as offsets from its port.
func (p *process) extraPorts() []int {
	if p.clustered {
		return []int{10000} // the port for the other nodes
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
		// This read is the pause before the next attempt. It ends early if the process ends.
		_ = p.alive.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		if _, ended := p.alive.Read(make([]byte, 1)); ended == io.EOF {
			return fmt.Errorf("it has ended")
		}
	}
}

// end sends a signal and waits for the process to end.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	if sig != syscall.SIGKILL {
		// A frozen process handles no other signal.
		_ = p.cmd.Process.Signal(testproc.Thaw)
		last := time.AfterFunc(startLimit, func() { _ = p.cmd.Process.Kill() })
		defer last.Stop()
	}
	_ = p.cmd.Wait() // its exit status only names the signal
	p.alive.Close()
	p.cmd, p.alive = nil, nil
}

// Addr returns the server's address, host:port.
func (s *Server) Addr() string { return s.addr() }

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// URL returns the server's Redis URL, which names no user.
func (s *Server) URL() string {
	if s.tls {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Socket returns the path of the unix socket of a server started with [Socket].
func (s *Server) Socket() string {
	if !s.socket {
		return ""
	}
	return filepath.Join(s.socketDir, "redis.sock")
}

// Certificates returns the certificates of a server started with [TLS] or [TLSWith].
func (s *Server) Certificates() *Certs { return s.certs }

// Client returns a client with which a test prepares and inspects the server. It is closed when
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

// Dir returns the folder of the server's data.
func (s *Server) Dir() string { return s.dir }

// Kill ends the server without warning and waits for its end. On a stopped server it does
// nothing.
func (s *Server) Kill() { s.stop(syscall.SIGKILL) }

// Stop shuts the server down properly, with its data written, and waits for its end.
func (s *Server) Stop() { s.stop(syscall.SIGTERM) }

func (s *Server) stop(sig syscall.Signal) {
	s.own("end")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(sig)
}

// Run starts the server again, with the same data and port. It returns when the data is loaded
// and the server answers.
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
		// An old connection may occupy the port for a moment.
		if !s.portTaken() || time.Now().After(limit) {
			s.t.Fatal(err)
		}
	}
}

// Freeze stops the process until thaw is called; its connections stay open. Calling thaw again,
// or after the process has ended, has no effect.
func (s *Server) Freeze() (thaw func()) {
	s.own("freeze")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatalf("redistest: %s does not run and cannot be frozen", s.Addr())
	}
	frozen := s.cmd.Process
	_ = frozen.Signal(testproc.Freeze)
	return func() { _ = frozen.Signal(testproc.Thaw) }
}

// own panics if the server is the shared one, which no test may harm.
func (s *Server) own(verb string) {
	if s.shared {
		panic("redistest: a test must not " + verb + " the server that others share")
	}
}

// User creates an ACL user with these rules (~keys, &channels, +commands), or replaces it, in
// which case its earlier rules are gone. The user survives a restart.
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

// saveUsers writes the ACL users to the server's file.
func (s *Server) saveUsers(t testing.TB, c *redis.Client) {
	t.Helper()
	if s.password() != "" || s.shared {
		return
	}
	if err := c.Do(t.Context(), "ACL", "SAVE").Err(); err != nil {
		t.Fatalf("redistest: save users: %v", err)
	}
}

// Revoke deletes an ACL user. The server closes that user's connections.
func (s *Server) Revoke(name string) {
	s.t.Helper()
	c := s.Client(s.t)
	if err := c.Do(s.t.Context(), "ACL", "DELUSER", name).Err(); err != nil {
		s.t.Fatalf("redistest: revoke %s: %v", name, err)
	}
	s.saveUsers(s.t, c)
}

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.tail(8000) }

// tail returns the end of the log, starting with a whole line.
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

// logTail logs the end of the server's log if the test has failed.
func (s *Server) logTail(t testing.TB) {
	if t.Failed() {
		t.Logf("log of the redis-server on port %d:\n%s", s.port, s.tail(3000))
	}
}

func (p *process) portTaken() bool { return strings.Contains(p.tail(1000), "Address already in use") }

var (
	commonMu sync.Mutex
	common   *process // the shared server, nil before the first Shared
)

// Shared returns the server that all tests of one process share. The first call starts it, and
// it ends with the process. It is never emptied, so a test must use names of its own, and must
// not kill or freeze it.
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
		// The files are removed now because no later code would do it. The server has them
		// open, which keeps their contents.
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

// ping checks that this process, and not another one on its port, answers and has loaded its
// data.
func (p *process) ping() error {
	conn, err := net.DialTimeout("tcp", p.addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if p.tls {
		// A test may give the server a bad certificate on purpose.
		config := p.certs.Config()
		config.InsecureSkipVerify = true
		conn = tls.Client(conn, config)
	}
	ask := "PING\r\nINFO server\r\n"
	if password := p.password(); password != "" {
		ask = "AUTH " + password + "\r\n" + ask
	}
	if _, err := conn.Write([]byte(ask)); err != nil {
		return err
	}
	var answer []byte
	pid := fmt.Sprintf("process_id:%d\r\n", p.cmd.Process.Pid)
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		answer = append(answer, buf[:n]...)
		switch text := string(answer); {
		case strings.HasPrefix(text, "-"):
			line, _, _ := strings.Cut(text, "\r")
			return errors.New(line)
		case strings.Contains(text, "+PONG") && strings.Contains(text, pid):
			return nil
		case strings.Contains(text, "\r\nlru_clock:"):
			return errors.New("another process answers")
		case err != nil:
			return err
		}
	}
}

// until calls ready every few milliseconds until it returns nil. After startLimit the test
// fails.
func until(t testing.TB, what string, ready func() error) {
	t.Helper()
	limit := time.After(startLimit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("redistest: %s within %v: %v", what, startLimit, err)
		case <-t.Context().Done():
			t.Fatalf("redistest: %s before the test ended: %v", what, err)
		}
	}
}

// configure writes the configuration file, and an empty file for ACL users if tests may add
// some. The settings are in a file, and not in arguments, because sentinels rewrite it.
func (p *process) configure() error {
	conf := []string{"bind 127.0.0.1", "protected-mode no", `dir "` + p.dir + `"`}
	if p.tls {
		conf = append(conf, "port 0", fmt.Sprintf("tls-port %d", p.port),
			"tls-auth-clients yes", `tls-ca-cert-file "`+p.certs.CA+`"`,
			`tls-cert-file "`+p.pair.Cert+`"`, `tls-key-file "`+p.pair.Key+`"`)
	} else {
		conf = append(conf, fmt.Sprintf("port %d", p.port))
	}
	if p.socket {
		conf = append(conf, `unixsocket "`+filepath.Join(p.socketDir, "redis.sock")+`"`)
	}
	if !p.sentinel {
		conf = append(conf, `save ""`, "auto-aof-rewrite-percentage 0")
		if !p.noAOF {
			// Redis writes to the file before it answers, so a killed process loses nothing
			// that it has confirmed. With everysec, writes could wait for up to two seconds
			// if the disk is slow.
			conf = append(conf, "appendonly yes", "appendfsync no")
		}
	}
	if !p.sentinel && p.password() == "" && !p.shared {
		users := filepath.Join(p.dir, "users.acl")
		conf = append(conf, `aclfile "`+users+`"`)
		if err := os.WriteFile(users, nil, 0o600); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	conf = append(conf, p.lines...)
	if err := os.WriteFile(filepath.Join(p.dir, "redis.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// password returns the password that Args set for all clients, if any.
func (p *process) password() string {
	if i := slices.Index(p.args, "--requirepass"); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}
