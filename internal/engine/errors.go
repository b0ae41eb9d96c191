package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/observer"
)

// ErrSettled means that the delivery has already been settled.
var ErrSettled = ledger.ErrSettled

// ErrShutdown is the cause with which a drain that has run out of time cancels handlers.
var ErrShutdown = ledger.ErrNotStarted

// ErrInHandler means that a drain was called with the context of a running handler.
var ErrInHandler = errors.New("eventbus: called in a handler, for which it would wait: end the context of Run instead, or call it elsewhere")

// ErrBackpressure is [publish.ErrBackpressure].
var ErrBackpressure = publish.ErrBackpressure

// ErrDropped is [publish.ErrDropped].
var ErrDropped = publish.ErrDropped

// errLeaseLost is [ledger.LeaseLost]. It is also the cause with which the handler's context ends.
func errLeaseLost(why error) error { return ledger.LeaseLost(why) }

// Abandoned counts the events that a drain left behind.
type Abandoned struct {
	Topic, Group string
	Handlers     int // handlers that are still running; the leases of their events expire
	Unsettled    int // events that are held and were neither acknowledged nor given back
}

// errNack is the error of a run that the program settled by calling Nack without a cause.
var errNack = Named("nack", errors.New("eventbus: not acknowledged"))

// errTooOften is the reason to dead-letter h without a run: it has been delivered many times, and
// no run has ended with a result.
func errTooOften(h *Hold) error {
	return unrun(ReasonNoVerdict, fmt.Errorf("eventbus: delivered %d times without a verdict", h.Attempt))
}

func unknown(err error) error { return ledger.Unknown(err) }

// isTransient reports whether a call that failed with err may succeed later without anyone changing
// anything.
func isTransient(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
}

// ErrorClass returns the class of an error for a dead letter: "panic", "timeout", the reason why an
// event didn't run, or the name that the error gives itself through a method ErrorType() string.
// Otherwise it is the Go type of the innermost error. If errors are joined, ErrorClass follows the
// first one.
func ErrorClass(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // this walks the chain itself
		case *observer.PanicError:
			return "panic"
		case *observer.TimeoutError:
			return "timeout"
		case *signal:
			if e.reason != "" && e.reason != ReasonPermanent && isUnrun(e) {
				return e.reason
			}
		case interface{ ErrorType() string }:
			if name := nameOf(e); name != "" {
				return name
			}
		}
		next := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			next = joined.Unwrap()[0]
		}
		if next == nil {
			return fmt.Sprintf("%T", err)
		}
		err = next
	}
}

// nameOf returns e.ErrorType(), or "" if it panics, because e may be a type of the program.
func nameOf(e interface{ ErrorType() string }) (name string) {
	_ = guarded(func() error { name = e.ErrorType(); return nil })
	return name
}

// A named error has its own name for dead letters and telemetry.
type named struct {
	name string
	err  error
}

// Named wraps err and gives it the class name. It is for errors whose Go type says nothing.
func Named(name string, err error) error { return &named{name: name, err: err} }

func (n *named) Error() string { return n.err.Error() }

func (n *named) Unwrap() error { return n.err }

// ErrorType returns the name.
func (n *named) ErrorType() string { return n.name }
