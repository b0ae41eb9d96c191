package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
)

const keys = 500

// servers are a Postgres and a Redis on this machine. They end with the command.
type servers struct {
	dir       string
	running   []*exec.Cmd
	db        *sql.DB
	redis     *redis.Client
	redisAddr string
}

func startServers(ctx context.Context) (*servers, error) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir}
	if err := errors.Join(s.startPostgres(ctx), s.startRedis(ctx)); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *servers) startPostgres(ctx context.Context) error {
	bin := "" // of the PATH
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin"); len(found) > 0 {
		bin = slices.Max(found)
	}
	data := filepath.Join(s.dir, "data")
	initdb, err := s.asPostgres(filepath.Join(bin, "initdb"), "-D", data, "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
	if err != nil {
		return err
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	server, err := s.asPostgres(filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=100", "-c", "log_min_messages=fatal")
	if err != nil {
		return err
	}
	if err := s.run(server); err != nil {
		return err
	}
	s.db, err = sql.Open("pgx", fmt.Sprintf("host=%s port=5432 user=postgres dbname=postgres sslmode=disable", s.dir))
	if err != nil {
		return err
	}
	return until(ctx, func() error { return s.db.PingContext(ctx) })
}

// asPostgres returns a command of the user postgres, if this process is root, because
// Postgres refuses root.
func (s *servers) asPostgres(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...) //nolint:noctx // it ends by stop
	cmd.Dir = s.dir
	if os.Getuid() != 0 {
		return cmd, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, os.Chown(s.dir, uid, gid)
}

func (s *servers) startRedis(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.redisAddr = l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(s.redisAddr)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir) //nolint:noctx // it ends by stop
	if err := s.run(cmd); err != nil {
		return err
	}
	s.redis = redis.NewClient(&redis.Options{Addr: s.redisAddr, Protocol: 2, DisableIdentity: true})
	return until(ctx, func() error { return s.redis.Ping(ctx).Err() })
}

func (s *servers) run(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running = append(s.running, cmd)
	return nil
}

// until calls f until it returns nil, for 30 seconds at most.
func until(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return cmp.Or(context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *servers) stop() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	for _, cmd := range s.running {
		errs = append(errs, cmd.Process.Signal(syscall.SIGINT))
		_ = cmd.Wait() // its exit status only names the signal
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// transactions calls f for n events, ten for each transaction, and commits.
func (s *servers) transactions(ctx context.Context, n int, f func(tx *sql.Tx, from, to int) error) error {
	for from := 0; from < n; from += 10 {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := f(tx, from, min(from+10, n)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
