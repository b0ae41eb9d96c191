package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/observer"
)

// ErrorClass returns the class of an error for a dead letter. It is "panic", "timeout", the
// reason of an event that did not run, or the name that an error gives itself by a method
// ErrorType() string. Otherwise it is the Go type of the innermost error. Of joined errors
// ErrorClass follows the first.
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

// nameOf returns e.ErrorType(), or "" if it panics, because e may be of the program.
func nameOf(e interface{ ErrorType() string }) (name string) {
	_ = guarded(func() error { name = e.ErrorType(); return nil })
	return name
}

// A named error has a name of its own for dead letters and telemetry.
type named struct {
	name string
	err  error
}

// Named wraps err, whose class is then name. It is for errors whose Go type says nothing.
func Named(name string, err error) error { return &named{name: name, err: err} }

func (n *named) Error() string { return n.err.Error() }
func (n *named) Unwrap() error { return n.err }

// ErrorType returns the name.
func (n *named) ErrorType() string { return n.name }
