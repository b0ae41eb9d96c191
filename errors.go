package eventbus

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
)

// Errors that a program may want to tell apart.
var (
	// ErrClosed: the bus is shut down.
	ErrClosed = backend.ErrClosed

	// ErrUnknownOutcome: the event may or may not be stored. Publishing it again
	// may store it twice, unless Options.Dedup is set.
	ErrUnknownOutcome = backend.ErrUnknownOutcome

	// ErrUnavailable: the backend cannot be reached; nothing was stored.
	ErrUnavailable = backend.ErrUnavailable

	// ErrFull: the store is full; nothing was stored.
	ErrFull = backend.ErrFull

	// ErrTooLarge: the event is larger than allowed; nothing was stored.
	ErrTooLarge = backend.ErrTooLarge

	// ErrDenied: the backend does not permit it.
	ErrDenied = backend.ErrDenied

	// ErrBackpressure: too many events wait to be published; nothing was stored.
	// RejectWhenFull returns it at once, WaitWhenFull after Options.PublishTimeout.
	ErrBackpressure = engine.ErrBackpressure

	// ErrDropped: the event was dropped because too many events wait to be published;
	// it is not stored (DropNewest, DropOldest).
	ErrDropped = engine.ErrDropped

	// ErrLeaseLost: another member may have the event by now. A handler's context then
	// ends with this cause.
	ErrLeaseLost = backend.ErrLeaseLost

	// ErrSettled: the delivery was settled before.
	ErrSettled = engine.ErrSettled

	// ErrShutdown: the time of a drain is up. A handler's context then ends with this
	// cause.
	ErrShutdown = engine.ErrShutdown
)

// Permanent marks err as permanent: the event goes to the dead-letter topic without a
// retry. It returns nil for nil.
func Permanent(err error) error { return engine.Permanent(err) }

// RetryAfter asks for the next attempt after d, instead of the delay of Retry. The attempt
// counts. errors.Is and errors.As find err in the result. If err is nil the result is an
// error all the same, so a handler that has succeeded returns nil itself.
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// Snooze asks for redelivery after d. It spends no attempt if the backend can give events
// back for free (Limits.Refund); otherwise it spends one.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// Drop discards the event: the bus acknowledges it and counts it as discarded.
func Drop(reason string) error { return engine.Drop(reason) }

// An Error says which operation failed, and where.
type Error struct {
	Op           string // open, subscribe, ready
	Topic, Group string // empty if the error concerns the whole bus
	Err          error
}

func (e *Error) Error() string {
	where := ""
	switch {
	case e.Group != "":
		where = " " + e.Topic + "/" + e.Group
	case e.Topic != "":
		where = " " + e.Topic
	}
	return errorText(e.Op+where, e.Err)
}

// errorText names the call once, although the driver names it too.
func errorText(call string, err error) string {
	cause := strings.TrimPrefix(err.Error(), "eventbus: ")
	return "eventbus: " + call + ": " + strings.ReplaceAll(cause, ": "+call+": ", ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A FieldError says which field of an option or an event is wrong, and why.
// Nothing was done.
type FieldError struct {
	Field  string // such as "SubscribeOptions.Lease"
	Reason string
	Err    error // a class, such as ErrTooLarge; may be nil
}

func (e *FieldError) Error() string { return "eventbus: " + e.Field + " " + e.Reason }

// Unwrap returns the class.
func (e *FieldError) Unwrap() error { return e.Err }

// A PublishError says which events of a Publish are not certainly stored.
type PublishError struct {
	Topic  string
	Errors []error // as many as there were events; nil: stored
}

func (e *PublishError) Error() string {
	return errorText("publish "+e.Topic, backend.BatchError(e.Errors))
}

// Unwrap returns the errors of the events that failed.
func (e *PublishError) Unwrap() []error { return backend.BatchError(e.Errors).Unwrap() }

// A DrainError says which events a Shutdown or Drain left behind when its context ended.
// They are redelivered to other members when their leases have expired.
type DrainError struct {
	Abandoned []Abandoned
	Err       error // another failure of the drain; may be nil
}

// Abandoned counts the events that one subscription left behind.
type Abandoned struct {
	Topic, Group string
	Handlers     int // still running
	Unsettled    int // events held that are neither acknowledged nor given back
}

func (e *DrainError) Error() string {
	parts := make([]string, 0, len(e.Abandoned)+1)
	for _, a := range e.Abandoned {
		parts = append(parts, fmt.Sprintf("%s/%s: handlers still running: %d, events unsettled: %d",
			a.Topic, a.Group, a.Handlers, a.Unsettled))
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return "eventbus: drain: " + strings.Join(parts, "; ")
}

// Unwrap returns Err.
func (e *DrainError) Unwrap() error { return e.Err }

func drainError(left []engine.Abandoned, err error) error {
	if len(left) == 0 && err == nil {
		return nil
	}
	d := &DrainError{Err: err}
	for _, l := range left {
		d.Abandoned = append(d.Abandoned, Abandoned(l))
	}
	return d
}
