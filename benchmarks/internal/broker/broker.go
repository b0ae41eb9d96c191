// Package broker starts brokers in processes of their own, for programs that measure.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A Server is a broker on a free port of this machine. It ends with Stop.
type Server struct {
	URL  string // for eventbus.Open
	Addr string // host and port

	dir string
	cmd *exec.Cmd
}

// Start starts a "redis" without a file, or a "nats" with JetStream in a folder that Stop removes.
// args are further arguments of the program. It returns when the server accepts connections.
func Start(ctx context.Context, name string, args ...string) (s *Server, err error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		return nil, err
	}
	s = &Server{Addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	s.URL = name + "://" + s.Addr
	switch name {
	case "redis":
		s.cmd = s.redis(port, args)
	case "nats":
		s.cmd, err = s.nats(port, args)
	default:
		err = fmt.Errorf("%q is no broker that this program knows", name)
	}
	if err == nil {
		err = s.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) redis(port string, args []string) *exec.Cmd {
	args = append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir}, args...)
	return exec.Command("redis-server", args...) //nolint:noctx // it ends by Stop
}

// nats allows streams of any size, because the server reserves the largest size that each may have.
func (s *Server) nats(port string, args []string) (*exec.Cmd, error) {
	config := filepath.Join(s.dir, "config")
	text := fmt.Sprintf("jetstream { store_dir: %q, max_file_store: 8TB }\n", filepath.Join(s.dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	args = append([]string{"-c", config, "-a", "127.0.0.1", "-p", port, "-l", filepath.Join(s.dir, "log")}, args...)
	return exec.Command(natsPath(), args...), nil //nolint:noctx // it ends by Stop
}

// natsPath returns the nats-server that make has built, or else an installed one.
func natsPath() string {
	for _, root := range []string{"..", filepath.Join("..", "..")} { // of a program, and of its test
		path, err := filepath.Abs(filepath.Join(root, ".bin", "nats-server"))
		if _, missing := os.Stat(path); err == nil && missing == nil {
			return path
		}
	}
	return "nats-server"
}

// await starts the process, and waits until it accepts connections, for 10 seconds at most.
func (s *Server) await(ctx context.Context) error {
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", s.cmd.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server, waits for it, and removes its files.
func (s *Server) Stop() (err error) {
	if s.cmd != nil {
		err = s.cmd.Process.Signal(syscall.SIGTERM)
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
