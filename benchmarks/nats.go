package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A natsServer is a nats-server process with JetStream. It stores its streams in a folder
// that the suite removes at its end.
type natsServer struct {
	url     string
	monitor string // URL of the server's monitoring page
	cmd     *exec.Cmd
	dir     string
	conn    *natsgo.Conn
	js      jetstream.JetStream
}

var _ broker = (*natsServer)(nil)

const natsBinary = "nats-server"

// natsPath returns the nats-server that `make` has built, or else an installed one.
func natsPath() (string, error) {
	built := filepath.Join("..", ".bin", natsBinary)
	if _, err := os.Stat(built); err == nil {
		return filepath.Abs(built)
	}
	path, err := exec.LookPath(natsBinary)
	if err != nil {
		return "", fmt.Errorf("%w; `make .bin/nats-server` in the root builds it", err)
	}
	return path, nil
}

func startNATS(ctx context.Context) (*natsServer, error) {
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	s := &natsServer{dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *natsServer) start(ctx context.Context) error {
	path, err := natsPath()
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	page, err2 := freePort(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	s.url = "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.monitor = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(page))
	// The storage limit is high because the server reserves storage up to the bound of each of
	// the bus's streams.
	config := fmt.Sprintf("jetstream { store_dir: %q, max_file_store: 8TB }\n", filepath.Join(s.dir, "data"))
	file := filepath.Join(s.dir, "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	s.cmd = exec.Command(path, //nolint:noctx // it ends by stop
		"-c", file, "-a", "127.0.0.1", "-p", strconv.Itoa(port), "-m", strconv.Itoa(page), "-l", filepath.Join(s.dir, "log"))
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	err = until(ctx, func() (err error) {
		s.conn, err = natsgo.Connect(s.url)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", natsBinary, err)
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	return until(ctx, func() error { _, err := s.js.AccountInfo(ctx); return err })
}

// connections implements [broker]. It reads the server's monitoring page.
func (s *natsServer) connections(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.monitor+"/varz", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var varz struct{ Connections int }
	err = json.NewDecoder(answer.Body).Decode(&varz)
	return varz.Connections - 1, err
}

// empty implements [broker]. It deletes all streams.
func (s *natsServer) empty(ctx context.Context) error {
	names := s.js.StreamNames(ctx)
	var errs []error
	for name := range names.Name() {
		errs = append(errs, s.js.DeleteStream(ctx, name))
	}
	return errors.Join(append(errs, names.Err())...)
}

// unsettled asks the server how many messages of all groups were not received yet or not
// acknowledged.
func (s *natsServer) unsettled(ctx context.Context) (n int64, err error) {
	streams := s.js.ListStreams(ctx)
	for info := range streams.Info() {
		stream, err := s.js.Stream(ctx, info.Config.Name)
		if err != nil {
			return 0, err
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			n += int64(c.NumAckPending) + int64(c.NumPending)
		}
		if err := consumers.Err(); err != nil {
			return 0, err
		}
	}
	return n, streams.Err()
}

func (s *natsServer) stop() error {
	if s.conn != nil {
		s.conn.Close()
	}
	var err error
	if s.cmd != nil {
		err = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait() // its exit status does not matter
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *natsServer) pid() int { return s.cmd.Process.Pid }
