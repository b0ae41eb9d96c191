//go:build unix

package sqltest

import (
	"cmp"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/internal/testing/testproc"
)

// startLimit bounds the start of a server, on a busy machine.
const startLimit = 60 * time.Second

// A Server is a database server, a process that can be frozen and stopped. Its data is not
// synced to the disk, so it survives the end of the process only.
type Server struct {
	dialect, driver string
	dir             string // its data, its socket and its log
	account         string // runs the process, if the test runs as root
	command         []string
	end             syscall.Signal
	dsn             func(database string) string

	mu  sync.Mutex
	cmd *exec.Cmd // nil while it does not run
}

var (
	sharedMu      sync.Mutex
	sharedServers = map[string]*Server{}
)

// shared returns the server that all tests of the process share.
func shared(dialect string) (*Server, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if s := sharedServers[dialect]; s != nil {
		return s, nil
	}
	s, err := start(dialect)
	if err == nil {
		sharedServers[dialect] = s
	}
	return s, err
}

// Run runs the tests of a package and ends the servers that they share. TestMain calls it.
func Run(m *testing.M) int {
	defer func() {
		sharedMu.Lock()
		defer sharedMu.Unlock()
		for _, s := range sharedServers {
			s.remove()
		}
	}()
	return m.Run()
}

// Start starts a server of its own for a test that harms it. It is skipped as [New] is.
func Start(t testing.TB, dialect string) *Server {
	t.Helper()
	if _, err := shared(dialect); err != nil {
		New(t, dialect) // skips or fails
	}
	s, err := start(dialect)
	if err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	t.Cleanup(s.remove)
	return s
}

// New returns a new database in s.
func (s *Server) New(t testing.TB) *Database {
	t.Helper()
	name := fmt.Sprintf("t%d", made.Add(1))
	if err := s.create(name); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
	return Open(t, s.dialect, s.driver, s.dsn(name))
}

// create creates a database.
func (s *Server) create(name string) error {
	db, err := sql.Open(s.driver, s.dsn(""))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE " + name)
	return err
}

func start(dialect string) (*Server, error) {
	dir, err := os.MkdirTemp("", "sqltest")
	if err != nil {
		return nil, err
	}
	s := &Server{dialect: dialect, dir: dir}
	prepare := s.preparePostgres
	if dialect == "mysql" {
		prepare = s.prepareMySQL
	}
	if err := prepare(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("%s: %w", dialect, err)
	}
	if err := s.run(); err != nil {
		s.remove()
		return nil, fmt.Errorf("%s: %w", dialect, err)
	}
	return s, nil
}

func (s *Server) preparePostgres() error {
	bin, err := postgresBin()
	if err != nil {
		return err
	}
	s.account, s.driver, s.end = "postgres", "pgx", syscall.SIGQUIT
	s.dsn = func(name string) string {
		return fmt.Sprintf("host=%s port=5432 user=postgres dbname=%s sslmode=disable", s.dir, cmp.Or(name, "postgres"))
	}
	data := filepath.Join(s.dir, "data")
	s.command = []string{
		filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "synchronous_commit=off", "-c", "shared_buffers=128MB", "-c", "max_connections=200",
	}
	return s.once(filepath.Join(bin, "initdb"), "-D", data, "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
}

// postgresBin returns the folder of the newest Postgres.
func postgresBin() (string, error) {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			return n
		}
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) })), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errMissing
	}
	return filepath.Dir(path), nil
}

func (s *Server) prepareMySQL() error {
	server, err := look("mariadbd", "mysqld")
	if err != nil {
		return err
	}
	s.account, s.driver, s.end = "mysql", "mysql", syscall.SIGTERM
	socket, data := filepath.Join(s.dir, "s"), filepath.Join(s.dir, "data")
	s.dsn = func(name string) string { return fmt.Sprintf("root@unix(%s)/%s", socket, name) }
	s.command = []string{
		server, "--no-defaults", "--datadir=" + data, "--socket=" + socket, "--skip-networking", "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + s.dir, "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-log-bin", "--max-connections=200",
		"--innodb-buffer-pool-size=128M",
	}
	if install, err := look("mariadb-install-db"); err == nil {
		return s.once(install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	}
	return s.once(server, "--no-defaults", "--initialize-insecure", "--datadir="+data)
}

// look returns the path of the first program that is installed, perhaps in a folder that only
// the PATH of root has.
func look(names ...string) (string, error) {
	for _, name := range names {
		for _, path := range []string{name, "/usr/sbin/" + name} {
			if found, err := exec.LookPath(path); err == nil {
				return found, nil
			}
		}
	}
	return "", errMissing
}

// process returns a command of the server's account.
func (s *Server) process(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	if os.Getuid() != 0 {
		return cmd, nil
	}
	u, err := user.Lookup(s.account)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, os.Chown(s.dir, uid, gid)
}

// once runs a command that ends.
func (s *Server) once(name string, args ...string) error {
	cmd, err := s.process(name, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd, err := s.process(s.command[0], s.command[1:]...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := testproc.Start(cmd); err != nil {
		return err
	}
	s.cmd = cmd
	db, err := sql.Open(s.driver, s.dsn(""))
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // a test has nothing else to do
		if err = db.Ping(); err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("it does not answer: %w; its log:\n%s", err, text)
		}
	}
}

// Run restarts the server on its data.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatalf("sqltest: %v", err)
	}
}

// Stop ends the server and its connections, and waits for its end.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(s.end)
	last := time.AfterFunc(startLimit, func() { _ = s.cmd.Process.Kill() })
	defer last.Stop()
	_ = s.cmd.Wait() // its exit status only names the signal
	s.cmd = nil
}

func (s *Server) remove() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}
