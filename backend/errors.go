package backend

import (
	"errors"
	"fmt"
	"strings"
)

// What the bus must be able to tell apart. A driver wraps them, with %w, around
// what its broker said.
var (
	// ErrUnavailable: the broker could not be reached, or refused for now, and
	// the call certainly had no effect; trying again may help. Not for a call
	// that was sent and not answered: that is ErrUnknownOutcome. Of a Receive:
	// what was on its way comes back when its lease has passed.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome: the call may or may not have taken effect.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrGone: the topic, the group or the stored body is lost.
	ErrGone = errors.New("gone")

	// ErrDenied: the broker does not allow it. No effect; trying again does not
	// help until somebody changes permissions.
	ErrDenied = errors.New("denied")

	// ErrFull: a limit of the store is reached. No effect.
	ErrFull = errors.New("full")

	// ErrTooLarge: the message is larger than the broker takes. No effect.
	ErrTooLarge = errors.New("too large")

	// ErrRefused: the broker refused for a reason that is not among these. No
	// effect; trying again does not help.
	ErrRefused = errors.New("refused")

	// ErrLeaseLost: the delivery is no longer the caller's.
	ErrLeaseLost = errors.New("lease lost")

	// ErrClosed: the Source or the Backend was closed. No effect. Not for a
	// connection that the broker closed: that is ErrUnavailable.
	ErrClosed = errors.New("closed")
)

// NotStored reports whether err, an error of Publish for one message, says that
// the message is certainly not stored.
func NotStored(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false
	}
	for _, e := range []error{ErrUnavailable, ErrDenied, ErrFull, ErrTooLarge, ErrRefused, ErrClosed, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// A BatchError says what became of each item of a batch: it is as long as the
// batch, and a nil entry succeeded.
type BatchError []error

// Error counts the failures and shows the first.
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

// Unwrap returns the failures.
func (e BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// ErrorAt returns what err says about item i of a batch: err itself, unless it
// is or wraps a [BatchError].
func ErrorAt(err error, i int) error {
	if err == nil {
		return nil
	}
	if be, ok := errors.AsType[BatchError](err); ok {
		if i < len(be) {
			return be[i]
		}
		return nil
	}
	return err
}

// AsBatchError returns errs as one error: nil if none of them is set.
func AsBatchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return BatchError(errs)
		}
	}
	return nil
}

// MaxName is the longest topic or group name in bytes, with any suffix that the
// bus adds.
const MaxName = 200

// CheckName returns an error that says what is wrong with name as the name of a
// topic or a group: it is tokens of A-Z a-z 0-9 _ - joined by dots, at most
// [MaxName] bytes. The bus checks every name before a driver sees it.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxName:
		return fmt.Errorf("has %d bytes, more than %d", len(name), MaxName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return fmt.Errorf("%q has an empty token between dots", name)
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		default:
			return fmt.Errorf("%q contains %q; allowed are letters, digits, '_' and '-', joined by '.'", name, r)
		}
	}
	return nil
}
