// Package presence tells operators which processes work for which groups, and with which settings.
//
//	here, err := presence.New(ctx, bus, presence.Options{Service: "shop"})
//	…
//	err = bus.Serve(ctx, here)
//
// A service takes the [Announcer] in service.Options.Servers. The console, "eventbus processes" and
// "eventbus doctor" read the notes, and so can a program:
//
//	processes, err := presence.Processes(ctx, b)
//	for _, s := range presence.Compare(processes) {
//		if s.Differs() {
//			fmt.Println(s) // orders/billing: Retry.MaxAttempts is 12 in shop@a/71, and 3 in shop@b/40
//		}
//	}
//
// # Notes
//
// Each process has one message in the topic [Topic], its note. Every Options.Every it writes a new
// one and removes the one before. After a change, such as a new subscription, it does so within a
// fifth of this time. The end of the announcer removes the note. If a process was killed, or cannot
// reach the broker, its note stays, and the process is [Process.Silent] after three times Every. Every ten
// minutes each announcer removes the notes that are older than ten minutes, and than three times their
// Every. So the topic has one message for each process, and for each one that ended within the last twenty
// minutes. If old notes cannot be removed, an announcer writes no more than sixteen.
//
// A note has the names, states and settings of at most 200 subscriptions, and of fewer if it would
// have more than 256 KiB. It has no event. The error of a subscription may name a server of the broker.
//
// A failure to write a note is told to Options.OnFailure, and changes nothing else in the process. On a
// broker with access control, the announcer needs the rights to publish, read and remove in Topic, and
// [Processes] needs the right to read it.
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

// Topic is the topic of the notes. A subscription to a pattern does not get them.
const Topic = pattern.Presence

// Options are the settings of an [Announcer]. A zero field means its default.
type Options struct {
	// Service and Instance are the ones of the options of the bus, so that all reports name the
	// process alike.
	Service, Instance string

	// Version is the version of the program. Default: the version of the main module or, if it has
	// none, the revision from which the program was built.
	Version string

	Every   time.Duration // the time between two notes; 1 s to 1 h; default 15 s
	Timeout time.Duration // bounds each call to the backend; default 5 s

	// OnFailure is called if a note cannot be written, or one removed: on the goroutine of
	// ListenAndServe, or of Shutdown. Default: log the first of several failures in a row with slog.Default().
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

// An Announcer writes the notes of one bus. It is an [eventbus.Server]. Its methods are safe for
// concurrent use.
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

// New returns an Announcer for b. Its calls have the values of ctx, and do not end with it. If the
// backend of b cannot read topics or remove messages, notes would stay for ever, and the error
// matches [errors.ErrUnsupported]. If New refuses o, the error is an *eventbus.FieldError.
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
		return nil, fmt.Errorf("presence: %w", err) // the service is no source of events
	}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return a, nil
}

// ListenAndServe writes notes until Shutdown is called or the backend is closed, and returns nil then. It
// can be called once.
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
			a.tell(err, failed)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-a.stop:
			return nil
		}
	}
}

// tell tells of a failure. again says that the turn before has failed too.
func (a *Announcer) tell(err error, again bool) {
	switch {
	case a.options.OnFailure != nil:
		a.options.OnFailure(err)
	case !again:
		slog.Default().Warn("eventbus: the note of this process was not written; operators may not see the process", "error", observer.ErrorText(err))
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

// Shutdown ends ListenAndServe and removes the note. It takes Options.Timeout at most, so that a broker
// that hangs leaves the time for the drain to the bus. If the note cannot be removed, Options.OnFailure is
// told, and the note stays for a while. Shutdown returns an error only if ctx ends before. A second Shutdown
// waits for the first one.
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
	err := fmt.Errorf("presence: the note stays: %w", backend.ErrUnavailable)
	select {
	case <-a.ended:
		err = a.writer.leave(short)
	case <-short.Done():
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("presence: %w", context.Cause(ctx))
	case err != nil && !errors.Is(err, backend.ErrClosed):
		a.tell(err, false)
	}
	return nil
}
