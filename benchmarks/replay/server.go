package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a broker of one kind on this machine, which ends with the measurement.
type server struct {
	url   string
	dir   string
	cmd   *exec.Cmd     // nil: the broker is in this process
	redis *redis.Client // nil: it is no Redis

	phases []slow // one for each phase of a run, of the best run
}

// A slow is the slowest command of Redis in a phase.
type slow struct {
	phase, command string
	took           time.Duration
}

// The phases that check knows.
const (
	publishes = "publishes"
	resets    = "resets the group"
	replays   = "replays"
)

// check returns an error if a command of the reset or the replay took longer than most, and longer than
// the XADD of a single event.
func (s *server) check(most time.Duration) error {
	for _, c := range s.phases {
		if c.phase == publishes {
			most = max(most, c.took)
		}
	}
	for _, c := range s.phases {
		if (c.phase == resets || c.phase == replays) && c.took > most {
			return fmt.Errorf("while the program %s, a command took %v, more than %v: %s", c.phase, c.took, most, c.command)
		}
	}
	return nil
}

func start(ctx context.Context, name string) (s *server, err error) {
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return nil, err
	}
	s = &server{dir: dir}
	switch name {
	case "redis":
		err = s.startRedis(ctx)
	case "nats":
		err = s.startNATS(ctx)
	case "mem":
		s.url = "mem:?max_messages=100000000&max_bytes=16GiB"
	default:
		err = errors.New("is no broker that this program knows")
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// startRedis starts a Redis without a file, which logs each command of more than 100 µs.
func (s *server) startRedis(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	if err := s.run("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir,
		"--slowlog-log-slower-than", "100", "--slowlog-max-len", "1000000"); err != nil {
		return err
	}
	s.url = "redis://" + net.JoinHostPort("127.0.0.1", port)
	s.redis = redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", port), Protocol: 2, DisableIdentity: true})
	return until(ctx, func() error { return s.redis.Ping(ctx).Err() })
}

// startNATS starts a NATS with a file. A stream of a million events needs more than the 256 MiB that
// the bus allows by default.
func (s *server) startNATS(ctx context.Context) error {
	path := filepath.Join("..", ".bin", "nats-server") // of make
	if _, err := os.Stat(path); err != nil {
		path = "nats-server"
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(s.dir, "config")
	text := fmt.Sprintf("jetstream { store_dir: %q, max_file_store: 8TB }\n", filepath.Join(s.dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if err := s.run(path, "-c", config, "-a", "127.0.0.1", "-p", port, "-l", filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	s.url = "nats://" + net.JoinHostPort("127.0.0.1", port) + "?max_bytes=16GiB"
	return until(ctx, func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (s *server) run(path string, args ...string) error {
	cmd := exec.Command(path, args...) //nolint:noctx // it ends by stop
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

// begin begins a phase of the program: the server forgets the commands of before.
func (s *server) begin(ctx context.Context) {
	if s.redis != nil {
		_ = s.redis.Do(ctx, "slowlog", "reset").Err() // end reports a server that does not answer
	}
}

// end ends a phase and begins the next one. It records the slowest command, unless the slowest command of
// an earlier run took less. It adds its error to failed.
func (s *server) end(ctx context.Context, phase string, failed *error) {
	if s.redis == nil {
		return
	}
	entries, err := s.redis.SlowLogGet(ctx, -1).Result()
	*failed = errors.Join(*failed, err)
	found := slow{phase: phase, command: "none of more than 100 µs"}
	for _, e := range entries {
		if e.Duration > found.took && len(e.Args) > 0 && e.Args[0] != "slowlog" {
			found.took, found.command = e.Duration, title(e.Args)
		}
	}
	switch i := slices.IndexFunc(s.phases, func(c slow) bool { return c.phase == phase }); {
	case i < 0:
		s.phases = append(s.phases, found)
	case found.took < s.phases[i].took:
		s.phases[i] = found
	}
	s.begin(ctx)
}

// title returns the first words of a command.
func title(args []string) (text string) {
	for _, a := range args[:min(len(args), 8)] {
		if len(a) > 24 {
			a = a[:24] + "…"
		}
		text += a + " "
	}
	return text
}

func (s *server) stop() error {
	var err error
	if s.redis != nil {
		err = s.redis.Close()
	}
	if s.cmd != nil {
		err = errors.Join(err, s.cmd.Process.Signal(syscall.SIGTERM))
		_ = s.cmd.Wait() // its exit status does not matter
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// until calls f until it returns nil, for 10 seconds at most.
func until(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		pause(ctx)
	}
}
