package telemetry

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// other is the value of error.type, and of an attribute with a limited number of values, that
// stands for all remaining values. The OpenTelemetry conventions define it.
const other = "_OTHER"

// kinds maps known errors to values of error.type. The first match counts.
var kinds = []struct {
	err  error
	name string
}{
	{eventbus.ErrLeaseLost, "lease_lost"},
	{eventbus.ErrShutdown, "shutdown"},
	{eventbus.ErrUnknownOutcome, "unknown_outcome"},
	{eventbus.ErrDropped, "dropped"},
	{eventbus.ErrBackpressure, "backpressure"},
	{eventbus.ErrUnavailable, "unavailable"},
	{eventbus.ErrDenied, "denied"},
	{eventbus.ErrFull, "full"},
	{eventbus.ErrTooLarge, "too_large"},
	{eventbus.ErrClosed, "closed"},
	{errors.ErrUnsupported, "unsupported"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
}

// panicked is the error.type of a handler that panics or ends its goroutine.
const panicked = "panic"

// errorType returns the attribute error.type for err. It is "" if err is nil, or if a handler
// snoozes or drops its event. An error of the program can choose the value with a method
// ErrorType() string, which should return few different values.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*observer.PanicError](err); ok {
		return panicked
	}
	switch named := ownType(err); named {
	case "":
	case snooze, drop:
		return ""
	default:
		return named
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	if _, ok := errors.AsType[*eventbus.FieldError](err); ok {
		return "invalid"
	}
	return other
}

// runErrorType returns the error type of a handler's result: the first of Options.ErrorClasses that
// matches err, as in a dead letter, and otherwise errorType(err).
func (t *Telemetry) runErrorType(err error) string {
	kind := errorType(err)
	if kind == "" {
		return ""
	}
	return cmp.Or(classOf(err, t.options.ErrorClasses), kind)
}

// classOf returns the name of the first class that matches err, or "".
func classOf(err error, classes []eventbus.ErrorClass) string {
	defer contain()
	for _, c := range classes {
		if c.Is(err) {
			return c.Name
		}
	}
	return ""
}

// drop is what ErrorType returns for the error of eventbus.Drop.
const drop = "drop"

// ownType returns the first non-empty result of ErrorType in the chain of err, or "".
func ownType(err error) string {
	for err != nil {
		named, ok := errors.AsType[interface {
			error
			ErrorType() string
		}](err)
		if !ok {
			return ""
		}
		if name := named.ErrorType(); name != "" {
			return name
		}
		err = errors.Unwrap(named)
	}
	return ""
}
