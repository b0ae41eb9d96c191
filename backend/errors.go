package backend

import (
	"errors"
	"slices"
)

// The error classes that the bus tells apart, by [errors.Is]. The error of a driver wraps a
// class and the error of the client, both with %w. If it matches [ErrUnknownOutcome] and
// another class, the call may have had an effect.
var (
	// ErrUnavailable means that the broker could not be reached, or refused for now. The
	// call certainly had no effect, and trying again may help. A call that was sent and not
	// answered is ErrUnknownOutcome instead. If Receive returns ErrUnavailable, messages
	// that the broker has already sent are redelivered when their leases have expired.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome means that the call may or may not have taken effect.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrGone means that a topic, a group or the stored body of a message does not exist.
	ErrGone = errors.New("gone")

	// ErrDenied means that the broker does not allow the call. The call had no effect, and
	// trying again does not help until somebody changes permissions.
	ErrDenied = errors.New("denied")

	// ErrFull means that a limit of the store is reached. The call had no effect.
	ErrFull = errors.New("full")

	// ErrTooLarge means that the message is larger than the broker accepts. The call had no
	// effect.
	ErrTooLarge = errors.New("too large")

	// ErrRefused means that the broker or the driver refused the call for a reason without
	// an error class of its own. The call had no effect, and trying again does not help.
	ErrRefused = errors.New("refused")

	// ErrLeaseLost means that the caller is no longer the holder of the delivery.
	ErrLeaseLost = errors.New("lease lost")

	// ErrReplaced means that a later incarnation of the member's [Config].Instance has attached to the
	// group. Receive of the replaced member returns it, each time. The member must not attach
	// again: it would replace the later incarnation in turn.
	ErrReplaced = errors.New("replaced by a later incarnation of its instance")

	// ErrPaused means that the group is paused, see [Pauser]. Only Receive returns it, as a
	// [PausedError].
	ErrPaused = errors.New("the group is paused")

	// ErrClosed means that the Source or the Backend was closed. The call had no effect. A
	// connection that the broker closed is ErrUnavailable instead.
	ErrClosed = errors.New("closed")
)

// noEffect are the errors of calls that certainly had no effect.
var noEffect = []error{ErrUnavailable, ErrDenied, ErrFull, ErrTooLarge, ErrRefused, ErrReplaced, ErrPaused, ErrClosed, errors.ErrUnsupported}

// Class returns the error class that err matches: an error of this package or
// [errors.ErrUnsupported]. It returns nil if err matches none. If err matches several,
// ErrUnknownOutcome comes first, because the call may have had an effect.
func Class(err error) error {
	for _, class := range slices.Concat([]error{ErrUnknownOutcome}, noEffect, []error{ErrGone, ErrLeaseLost}) {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// NotStored reports whether err, an error of Publish for one message, says that the
// message is certainly not stored.
func NotStored(err error) bool { return slices.Contains(noEffect, Class(err)) }
