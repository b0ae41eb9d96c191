package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// urlVariable is the environment variable with the backend's URL. The flag does not default to it, because --help would
// then print the URL.
const urlVariable = "EVENTBUS_URL"

// A connection opens the backend that a command works on, from the flags that all commands share.
type connection struct {
	drivers  []backend.Driver
	url      string
	fallback string // the URL to open if neither flag nor variable gives one; empty: an error
	timeout  time.Duration
}

func (c *connection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "", "`backend`, such as mem: (default: "+urlVariable+")")
	cmd.Flags().DurationVar(&c.timeout, "connect-timeout", 5*time.Second, "how long to wait for an answer of the backend")
}

// address returns the URL to open.
func (c *connection) address() (string, error) {
	for _, url := range []string{c.url, os.Getenv(urlVariable), c.fallback} {
		if url != "" {
			return url, nil
		}
	}
	return "", errors.New("no backend: give --url or set " + urlVariable)
}

// isBroker reports whether the backend is a server or a file, where the outcome of a call can be unknown.
func (c *connection) isBroker() bool {
	url, err := c.address()
	return err == nil && !strings.HasPrefix(url, "mem:")
}

// isMemory reports whether the backend is the memory of this process.
func (c *connection) isMemory() bool {
	url, err := c.address()
	return err == nil && strings.HasPrefix(url, "mem:") && slices.ContainsFunc(c.drivers, func(d backend.Driver) bool { return d == inmemory.Driver{} })
}

// open returns a bus whose backend has answered a ping, if the backend supports pings.
func (c *connection) open(ctx context.Context, o eventbus.Options) (*eventbus.Bus, error) {
	url, err := c.address()
	if err != nil {
		return nil, err
	}
	if c.timeout <= 0 {
		return nil, errors.New("--connect-timeout must be positive")
	}
	var bus *eventbus.Bus
	err = c.bound(ctx, func(ctx context.Context) (err error) {
		bus, err = eventbus.Open(ctx, url, o, c.drivers...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.ping(ctx, bus); err != nil {
		c.close(ctx, bus)
		return nil, err
	}
	return bus, nil
}

// ping returns nil if the backend answers a ping or does not support pings.
func (c *connection) ping(ctx context.Context, bus *eventbus.Bus) error {
	return c.bound(ctx, func(ctx context.Context) error { return ignoreUnsupported(backend.Ping(ctx, bus.Backend())) })
}

// ignoreUnsupported returns nil if err says that the backend does not support the call, and err otherwise.
func ignoreUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// bound calls f, which queries the backend, with a context that ends after c.timeout. If the
// time runs out, the error is a *timeoutError.
func (c *connection) bound(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimedOut)
	defer cancel()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errTimedOut) {
		return &timeoutError{after: c.timeout, err: err}
	}
	return err
}

var errTimedOut = errors.New("the connect timeout is over")

// A timeoutError means that the backend did not answer in time.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("the backend does not answer within %v: %v", e.after, e.err) // the driver may know why
}

func (e *timeoutError) Unwrap() error { return e.err }

// close shuts down the bus that open returned, even after ctx has ended.
func (c *connection) close(ctx context.Context, bus *eventbus.Bus) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	_ = bus.Shutdown(ctx) // nothing is lost if it fails: no subscription and no Publish is left
}

// look opens the backend for a command that changes nothing, and calls f. All calls of f to the backend share one
// timeout.
func (c *connection) look(cmd *cobra.Command, f func(context.Context, backend.Backend) error) error {
	bus, err := c.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
	if err == nil {
		defer c.close(cmd.Context(), bus)
		err = c.bound(cmd.Context(), func(ctx context.Context) error { return f(ctx, bus.Backend()) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return nil
}

// logProblems returns an observer that logs what no call returns as an error, such as a lost connection.
func logProblems(w io.Writer) observer.Observer {
	return observer.Slog(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// drivers are the drivers that this program supports.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{}}
}

// init silences go-redis, which would log each connection that fails. The commands report these errors themselves.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
