// Package presence shows operators which processes work for which groups, and with which settings.
//
//	here, err := presence.New(ctx, bus, presence.Options{Service: "shop"})
//	…
//	err = bus.Serve(ctx, here)
//
// In a service, put the [Announcer] into service.Options.Servers. The console, "eventbus processes"
// and "eventbus doctor" read what it announces, and so can your program:
//
//	processes, err := presence.Processes(ctx, b)
//	for _, s := range presence.Compare(processes) {
//		if s.Differs() {
//			fmt.Println(s) // orders/billing: Retry.MaxAttempts is 12 in shop@a/71, and 3 in shop@b/40
//		}
//	}
//
// # Heartbeats
//
// Each process has one message in the topic [Topic], its heartbeat. Every Options.Every it writes a
// new one and removes the previous one. After a change, such as a new subscription, it does so
// within a fifth of this time. When the announcer ends, it removes the heartbeat. If a process was
// killed or cannot reach the broker, its heartbeat stays, and the process is [Process.Silent] after
// three times Every. Every ten minutes, each announcer removes heartbeats that are older than both
// ten minutes and three times their Every, so the topic has one message per process, including
// those that ended within the last twenty minutes. While old heartbeats cannot be removed, an
// announcer writes no more than sixteen.
//
// A heartbeat has the names, states and settings of at most 200 subscriptions, and of fewer if it
// would exceed 256 KiB. It has no events' payloads. The error of a subscription may name a server
// of the broker.
//
// If a heartbeat cannot be written, Options.OnFailure is called, and nothing else in the process is
// affected. On a broker with access control, the announcer needs permission to publish, read and
// remove in Topic, and [Processes] needs permission to read it.
package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pattern"
	"github.com/seed41896749/eventbus/observer"
)

// Topic is the topic of the heartbeats. Subscriptions to a pattern don't get them.
const Topic = pattern.Presence

// Options are the settings of an [Announcer]. A zero field means its default.
type Options struct {
	// Service and Instance are those in the options of the bus, so that all reports use the same
	// name for the process.
	Service, Instance string

	// Version is the version of your program. By default it is the version of the main module or,
	// if that has none, the revision from which the program was built.
	Version string

	Every   time.Duration // the time between heartbeats, 1 s to 1 h; default 15 s
	Timeout time.Duration // limits each call to the backend; default 5 s

	// OnFailure is called if a heartbeat cannot be written or removed, on the goroutine of
	// ListenAndServe or Shutdown. By default the first of several failures in a row is logged with
	// slog.Default().
	OnFailure func(error)
}

func (o Options) withDefaults() Options {
	bus := eventbus.Options{Service: o.Service, Instance: o.Instance}.Effective()
	o.Service = bus.Service
	o.Version = cmp.Or(o.Version, programVersion())
	o.Every = cmp.Or(o.Every, 15*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	return o
}

func (o Options) check() error {
	switch {
	case o.Every < time.Second:
		return &eventbus.FieldError{Field: "presence.Options.Every", Reason: fmt.Sprintf("is %v, less than a second", o.Every)}
	case o.Every > time.Hour:
		return &eventbus.FieldError{Field: "presence.Options.Every", Reason: fmt.Sprintf("is %v, more than an hour", o.Every)}
	case o.Timeout < 0:
		return &eventbus.FieldError{Field: "presence.Options.Timeout", Reason: "is negative"}
	}
	return nil
}

// An Announcer writes the heartbeats of one bus. It is an [eventbus.Server]. Its methods are safe
// for concurrent use.
type Announcer struct {
	options Options
	writer  *writer
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	stop    chan struct{} // closed by Shutdown
	ended   chan struct{} // closed when ListenAndServe has returned
	left    chan struct{} // closed when Shutdown has returned

	mu      sync.Mutex
	running bool // ListenAndServe was called
	closed  bool // Shutdown was called
}

var _ eventbus.Server = (*Announcer)(nil)

// New returns an Announcer for b. Its calls have the values of ctx, but don't end with it. If the
// backend of b cannot read topics or remove messages, heartbeats would stay for ever, so the error
// matches [errors.ErrUnsupported]. If o is invalid, the error is an *eventbus.FieldError.
func New(ctx context.Context, b *eventbus.Bus, o Options) (*Announcer, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	_, reads := backend.As[backend.Reader](b.Backend())
	_, removes := backend.As[backend.Remover](b.Backend())
	if !reads || !removes {
		return nil, fmt.Errorf("presence: the backend cannot read topics or remove messages: %w", errors.ErrUnsupported)
	}
	a := &Announcer{options: o, writer: newWriter(b, o, uuid.NewString()), stop: make(chan struct{}), ended: make(chan struct{}), left: make(chan struct{})}
	if _, err := a.writer.process.message(mostNote); err != nil {
		return nil, fmt.Errorf("presence: %w", err) // the service's name is not a valid Source
	}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// ListenAndServe writes heartbeats until Shutdown is called or the backend is closed, and then
// returns nil. It can be called once.
func (a *Announcer) ListenAndServe() error {
	a.mu.Lock()
	running, closed := a.running, a.closed
	a.running = true
	a.mu.Unlock()
	switch {
	case running:
		return errors.New("presence: ListenAndServe was called before")
	case closed:
		return nil
	}
	defer close(a.ended)
	tick := time.NewTicker(a.options.Every / 5)
	defer tick.Stop()
	failed := false
	for {
		err := a.writer.turn(a.ctx, time.Now(), a.stopped)
		switch {
		case errors.Is(err, backend.ErrClosed):
			return nil
		case err != nil && a.ctx.Err() == nil:
			a.report(err, failed)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-a.stop:
			return nil
		}
	}
}

// report reports a failure. again says whether the previous turn failed too.
func (a *Announcer) report(err error, again bool) {
	switch {
	case a.options.OnFailure != nil:
		a.options.OnFailure(err)
	case !again:
		slog.Default().Warn("eventbus: the heartbeat of this process was not written; operators may not see the process", "error", observer.ErrorText(err))
	}
}

func (a *Announcer) stopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// Shutdown ends ListenAndServe and removes the heartbeat. It takes at most Options.Timeout, so that
// a broker that hangs leaves the bus enough time to drain. If the heartbeat cannot be removed, it
// stays for a while, and Options.OnFailure is called. Shutdown returns an error only if ctx ends
// first. A second Shutdown waits for the first one.
func (a *Announcer) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	again, running := a.closed, a.running
	a.closed = true
	a.mu.Unlock()
	if again {
		select {
		case <-a.left:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("presence: %w", context.Cause(ctx))
		}
	}
	defer close(a.left)
	defer a.cancel()
	close(a.stop)
	if !running {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	err := fmt.Errorf("presence: the heartbeat stays: %w", backend.ErrUnavailable)
	select {
	case <-a.ended:
		err = a.writer.leave(short)
	case <-short.Done():
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("presence: %w", context.Cause(ctx))
	case err != nil && !errors.Is(err, backend.ErrClosed):
		a.report(err, false)
	}
	return nil
}
