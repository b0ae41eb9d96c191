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
	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
	"github.com/spf13/cobra"
)

// urlVariable is the environment variable with the backend's URL. It is not the flag's
// default, because --help would print it.
const urlVariable = "EVENTBUS_URL"

// A connection opens the backend of a command.
type connection struct {
	drivers  []backend.Driver
	url      string
	fallback string // the URL to open if neither flag nor variable gives one; empty: an error
	patience time.Duration
}

func (c *connection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "", "`backend`, such as mem: (default: "+urlVariable+")")
	cmd.Flags().DurationVar(&c.patience, "connect-timeout", 5*time.Second, "how long the backend may take to answer")
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

// isBroker reports whether the backend is a server or a file, so that the outcome of a call can be
// unknown.
func (c *connection) isBroker() bool {
	url, err := c.address()
	return err == nil && !strings.HasPrefix(url, "mem:")
}

// forgets reports whether the backend is the memory of this process.
func (c *connection) forgets() bool {
	url, err := c.address()
	return err == nil && strings.HasPrefix(url, "mem:") && slices.ContainsFunc(c.drivers, func(d backend.Driver) bool { return d == inmemory.Driver{} })
}

// open returns a bus on a backend that has answered a ping, if it can be pinged.
func (c *connection) open(ctx context.Context, o eventbus.Options) (*eventbus.Bus, error) {
	url, err := c.address()
	if err != nil {
		return nil, err
	}
	if c.patience <= 0 {
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
	if err := c.answered(ctx, bus); err != nil {
		c.close(ctx, bus)
		return nil, err
	}
	return bus, nil
}

// answered returns nil if the backend answers a ping, or cannot be pinged.
func (c *connection) answered(ctx context.Context, bus *eventbus.Bus) error {
	return c.bound(ctx, func(ctx context.Context) error { return tolerated(backend.Ping(ctx, bus.Backend())) })
}

// tolerated returns nil if err says that the backend does not support the call, else err.
func tolerated(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// bound calls f with a context that ends after c.patience. f asks the backend. If the time
// has passed, the error is a *silenceError.
func (c *connection) bound(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.patience, errPatience)
	defer cancel()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errPatience) {
		return &silenceError{after: c.patience, err: err}
	}
	return err
}

var errPatience = errors.New("no patience left")

// A silenceError means that the backend did not answer in time.
type silenceError struct {
	after time.Duration
	err   error
}

func (e *silenceError) Error() string {
	return fmt.Sprintf("the backend does not answer within %v: %v", e.after, e.err) // the driver may know why
}

func (e *silenceError) Unwrap() error { return e.err }

// close shuts down the bus that open returned, even after ctx has ended.
func (c *connection) close(ctx context.Context, bus *eventbus.Bus) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.patience)
	defer cancel()
	_ = bus.Shutdown(ctx) // its error does not matter, because no subscription and no Publish is left
}

// look opens the backend for a command that changes nothing, and calls f. All calls of f to
// the backend share one timeout.
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

// logProblems returns an observer that logs occurrences, such as errors that no call
// returns.
func logProblems(w io.Writer) observer.Observer {
	return observer.Slog(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// drivers are the drivers that this program supports.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{}}
}

// init silences go-redis, which would log each connection that fails. The commands report
// the errors themselves.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
