package backend

import (
	"errors"
	"fmt"
	"slices"
)

// The error classes that the bus tells apart with [errors.Is]. The error of a driver wraps a
// class and the error of the client, both with %w. If it matches [ErrUnknownOutcome] besides
// another class, the call may have had an effect.
var (
	// ErrUnavailable means that the broker could not be reached, or refused the call for now. The
	// call certainly had no effect, and trying again may help. A call that was sent and not
	// answered is ErrUnknownOutcome instead. If Receive returns ErrUnavailable, messages that the
	// broker has already sent are redelivered when their leases expire.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome means that the call may or may not have taken effect.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrGone means that a topic, a group or the stored body of a message does not exist.
	ErrGone = errors.New("gone")

	// ErrDenied means that the broker does not permit the call. The call had no effect, and
	// trying again does not help until somebody changes the permissions.
	ErrDenied = errors.New("denied")

	// ErrFull means that a limit of the store is reached. The call had no effect.
	ErrFull = errors.New("full")

	// ErrTooLarge means that the message is larger than the broker accepts. The call had no
	// effect.
	ErrTooLarge = errors.New("too large")

	// ErrRefused means that the broker or the driver refused the call for a reason that has no
	// error class of its own. The call had no effect, and trying again does not help.
	ErrRefused = errors.New("refused")

	// ErrLeaseLost means that the caller does not hold the delivery anymore.
	ErrLeaseLost = errors.New("lease lost")

	// ErrReplaced means that a later incarnation of the member's [Config].Instance has attached
	// to the group. Receive of the replaced member returns it every time. The member must not
	// attach again, because it would in turn replace the later incarnation.
	ErrReplaced = errors.New("replaced by a later incarnation of its instance")

	// ErrPaused means that the group is paused; see [Pauser]. Only Receive returns it, as a
	// [PausedError].
	ErrPaused = errors.New("the group is paused")

	// ErrClosed means that the Source or the Backend was closed. The call had no effect. A
	// connection that the broker closed is ErrUnavailable instead.
	ErrClosed = errors.New("closed")
)

// noEffect are the classes of calls that certainly had no effect.
var noEffect = []error{ErrUnavailable, ErrDenied, ErrFull, ErrTooLarge, ErrRefused, ErrReplaced, ErrPaused, ErrClosed, errors.ErrUnsupported}

// Class returns the error class that err matches: an error of this package or
// [errors.ErrUnsupported]. It returns nil if err matches none. If err matches several,
// ErrUnknownOutcome takes precedence, because the call may have had an effect.
func Class(err error) error {
	for _, class := range slices.Concat([]error{ErrUnknownOutcome}, noEffect, []error{ErrGone, ErrLeaseLost}) {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// NotStored reports whether err, an error of Publish for one message, means that the message is
// certainly not stored.
func NotStored(err error) bool { return slices.Contains(noEffect, Class(err)) }

// A BatchError has one entry for each item of a batch. The entry of an item that succeeded is
// nil.
type BatchError []error

// Error returns the number of failures and the text of the first one.
func (e BatchError) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	switch {
	case failed == 0:
		return "no error"
	case len(e) == 1:
		return first.Error()
	}
	return fmt.Sprintf("%d of %d failed, first: %v", failed, len(e), first)
}

// Unwrap returns the entries that are not nil.
func (e BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// ErrorAt returns the error of item i of a batch, where err is the error of the whole call. If
// err is or wraps a [BatchError], the result is its entry i, or, if there is no such entry, an
// error that matches [ErrUnknownOutcome]. For any other err, the result is err.
func ErrorAt(err error, i int) error {
	if err == nil {
		return nil
	}
	if be, ok := errors.AsType[BatchError](err); ok {
		if i < len(be) {
			return be[i]
		}
		return fmt.Errorf("%w: the backend returned the results of %d items only", ErrUnknownOutcome, len(be))
	}
	return err
}

// AsBatchError returns errs as a [BatchError], or nil if all of them are nil.
func AsBatchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return BatchError(errs)
		}
	}
	return nil
}

// Set makes err the entry of item i in a batch of n items. The first call with a non-nil err
// allocates the entries. A nil err has no effect.
func (e *BatchError) Set(i, n int, err error) {
	if err == nil {
		return
	}
	if *e == nil {
		*e = make(BatchError, n)
	}
	(*e)[i] = err
}
