package backend

import (
	"errors"
	"slices"
)

// The kinds of errors that the bus tells apart. A driver wraps one of them, with %w,
// around the error of its client.
var (
	// ErrUnavailable: the broker could not be reached, or refused for now, and the call
	// certainly had no effect. Trying again may help. A call that was sent and not
	// answered is ErrUnknownOutcome instead. If a Receive returns it, messages that the
	// broker has already sent are redelivered when their leases have expired.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome: the call may or may not have taken effect.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrGone: the topic, the group or the stored body of a message does not exist.
	ErrGone = errors.New("gone")

	// ErrDenied: the broker does not allow the call, which had no effect. Trying again
	// does not help until somebody changes permissions.
	ErrDenied = errors.New("denied")

	// ErrFull: a limit of the store is reached. The call had no effect.
	ErrFull = errors.New("full")

	// ErrTooLarge: the message is larger than the broker takes. The call had no effect.
	ErrTooLarge = errors.New("too large")

	// ErrRefused: the broker refused for a reason that has no other error here. The call
	// had no effect, and trying again does not help.
	ErrRefused = errors.New("refused")

	// ErrLeaseLost: the caller is no longer the holder of the delivery.
	ErrLeaseLost = errors.New("lease lost")

	// ErrClosed: the Source or the Backend was closed. The call had no effect. A
	// connection that the broker closed is ErrUnavailable instead.
	ErrClosed = errors.New("closed")
)

// noEffect are the errors of calls that certainly had no effect.
var noEffect = []error{ErrUnavailable, ErrDenied, ErrFull, ErrTooLarge, ErrRefused, ErrClosed, errors.ErrUnsupported}

// Class returns the error class that err matches: an error of this package or
// [errors.ErrUnsupported]. It returns nil if err matches none. If err matches several,
// ErrUnknownOutcome comes first, because such a call may have had its effect.
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
