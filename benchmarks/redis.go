package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A redisServer is one Redis server on this machine. All targets on Redis use it, one after
// another. It stores nothing on disk, and ends with the suite.
type redisServer struct {
	addr   string
	cmd    *exec.Cmd
	dir    string
	client *redis.Client
}

var _ broker = (*redisServer)(nil)

const redisBinary = "redis-server"

func startRedis(ctx context.Context) (*redisServer, error) {
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	s := &redisServer{dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *redisServer) start(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.cmd = exec.Command(redisBinary, //nolint:noctx // it ends by stop
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", s.dir)
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	s.client = newRedisClient(s.addr)
	if err := until(ctx, func() error { return s.client.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("%s does not answer: %w", redisBinary, err)
	}
	return nil
}

// connections implements [broker].
func (s *redisServer) connections(ctx context.Context) (int, error) {
	info, err := s.client.InfoMap(ctx, "clients").Result()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(info["Clients"]["connected_clients"])
	return n - int(s.client.PoolStats().TotalConns), err
}

// empty implements [broker]. It deletes all keys of the server.
func (s *redisServer) empty(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

func (s *redisServer) stop() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.cmd != nil {
		errs = append(errs, s.cmd.Process.Signal(syscall.SIGTERM))
		_ = s.cmd.Wait() // its exit status does not matter
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *redisServer) pid() int { return s.cmd.Process.Pid }

// newRedisClient returns a client with enough connections for every goroutine. The client
// sends no commands of its own.
func newRedisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 2048, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

const (
	redisStream = "orders"
	redisGroup  = "billing"
)

// makeGroup creates the group in the stream. It creates the stream too if it is missing.
func makeGroup(ctx context.Context, c *redis.Client, stream string) error {
	return c.XGroupCreateMkStream(ctx, stream, redisGroup, "0").Err()
}

// unsettledOf asks the server how many messages the group has not read yet or not
// acknowledged.
func unsettledOf(ctx context.Context, c *redis.Client, stream string) (n int64, err error) {
	groups, err := c.XInfoGroups(ctx, stream).Result()
	for _, g := range groups {
		n += g.Pending + g.Lag
	}
	return n, err
}
