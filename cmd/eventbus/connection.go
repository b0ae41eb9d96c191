package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// urlVariable is the environment variable with the backend. It is no default of
// the flag, which --help would show.
const urlVariable = "EVENTBUS_URL"

// A connection is how a command comes to its backend.
type connection struct {
	drivers  []backend.Driver
	url      string
	fallback string // URL when none is given; empty: there must be one
	patience time.Duration
}

func (c *connection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "", "`backend`, such as mem: (default: "+urlVariable+")")
	cmd.Flags().DurationVar(&c.patience, "connect-timeout", 5*time.Second, "how long the backend may take to answer")
}

// address is the URL, or that of the fallback.
func (c *connection) address() (string, error) {
	for _, url := range []string{c.url, os.Getenv(urlVariable), c.fallback} {
		if url != "" {
			return url, nil
		}
	}
	return "", errors.New("no backend: give --url or set " + urlVariable)
}

// isBroker reports whether the backend is elsewhere, so that an answer can be
// lost on the way.
func (c *connection) isBroker() bool {
	url, err := c.address()
	return err == nil && !strings.HasPrefix(url, "mem:")
}

// open returns a bus on a backend that has answered, where it can.
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
	err = c.bound(ctx, func(ctx context.Context) error {
		return tolerated(backend.Ping(ctx, bus.Backend()))
	})
	if err != nil {
		c.close(ctx, bus)
		return nil, err
	}
	return bus, nil
}

// tolerated lets a verb be missing.
func tolerated(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// bound calls f, which is to ask the backend something.
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

// A silenceError is a backend that has not answered in time.
type silenceError struct {
	after time.Duration
	err   error
}

func (e *silenceError) Error() string {
	return fmt.Sprintf("the backend does not answer within %v", e.after)
}

func (e *silenceError) Unwrap() error { return e.err }

// close ends what open has begun, ctx or no ctx.
func (c *connection) close(ctx context.Context, bus *eventbus.Bus) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.patience)
	defer cancel()
	_ = bus.Shutdown(ctx) // nothing is subscribed, and what was published is known
}

// look opens the backend for a command that only asks, and calls f with it. The
// whole of f is bound.
func (c *connection) look(cmd *cobra.Command, f func(context.Context, backend.Backend) error) error {
	bus, err := c.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: unexpected(cmd.ErrOrStderr())})
	if err == nil {
		defer c.close(cmd.Context(), bus)
		err = c.bound(cmd.Context(), func(ctx context.Context) error { return f(ctx, bus.Backend()) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return nil
}

// unexpected logs what goes wrong without being anybody's error. What a driver
// says to each subscription is logged once a minute.
func unexpected(w io.Writer) observer.Observer {
	o := observer.Slog(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log, said := o.Noticed, map[string]time.Time{}
	o.Noticed = func(e observer.Noticed) { // hooks of an observer run one after another
		if time.Since(said[e.Text]) > time.Minute {
			said[e.Text] = time.Now()
			log(e)
		}
	}
	return o
}
