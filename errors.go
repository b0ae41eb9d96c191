package eventbus

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
)

// Errors to tell apart with [errors.Is].
var (
	// ErrClosed means that the bus is shut down.
	ErrClosed = backend.ErrClosed

	// ErrUnknownOutcome means that the event may or may not be stored. To publish it again may
	// store it twice, unless Options.Dedup is set.
	ErrUnknownOutcome = backend.ErrUnknownOutcome

	// ErrUnavailable means that the backend cannot be reached, or that Publish ended before it
	// sent the event. Nothing was stored.
	ErrUnavailable = backend.ErrUnavailable

	// ErrFull means that the store is full. Nothing was stored.
	ErrFull = backend.ErrFull

	// ErrTooLarge means that the event is larger than allowed. Nothing was stored.
	ErrTooLarge = backend.ErrTooLarge

	// ErrDenied means that the broker does not permit the call.
	ErrDenied = backend.ErrDenied

	// ErrBackpressure means that too many events are waiting to be published. Nothing was stored.
	// RejectWhenFull returns it at once, WaitWhenFull after Options.PublishTimeout.
	ErrBackpressure = engine.ErrBackpressure

	// ErrDropped means that the event was dropped because too many events are waiting to be
	// published (DropNewest, DropOldest). It is not stored.
	ErrDropped = engine.ErrDropped

	// ErrLeaseLost means that another member may have the event by now. The context of a running
	// handler ends with this cause.
	ErrLeaseLost = backend.ErrLeaseLost

	// ErrReplaced means that a later incarnation of this process, with the same Options.Instance,
	// has subscribed to the group. The subscription has failed for good.
	ErrReplaced = backend.ErrReplaced

	// ErrPaused means that an operator has paused the group. [Subscription.State] returns it.
	ErrPaused = backend.ErrPaused

	// ErrSettled means that the delivery is already settled.
	ErrSettled = engine.ErrSettled

	// ErrInHandler means that Shutdown or Drain was called with the context of a running handler,
	// for which it would wait. A handler that has to stop its program should cancel the context
	// of Run instead.
	ErrInHandler = engine.ErrInHandler

	// ErrShutdown means that the context of a Shutdown or Drain ended before a handler returned.
	// The context of that handler ends with this cause.
	ErrShutdown = engine.ErrShutdown
)

// Permanent returns an error that wraps err and sends the event to the dead-letter topic without
// further attempts. Return it for failures that another attempt cannot fix, such as a payload
// that makes no sense. If err is nil, Permanent returns nil.
func Permanent(err error) error { return engine.Permanent(err) }

// RetryAfter returns an error that wraps err and asks for the next attempt after d, instead of
// the delay of [Retry]. The failed attempt counts toward Retry.MaxAttempts. The result is an
// error even if err is nil: a handler that has succeeded must return nil, not RetryAfter(nil, d).
func RetryAfter(err error, d time.Duration) error { return engine.RetryAfter(err, d) }

// Snooze returns an error that asks for the event again after d, though not sooner than [Retry]
// allows. The run does not count as an attempt. On a backend without Limits.Refund it may count,
// if another member gets the event next. If the backend cannot delay the event that long, the
// observer's hook Failed reports it.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// Drop returns an error that makes the bus acknowledge the event and count it as discarded. The
// observer's hook Discarded gets an error with the text of reason.
func Drop(reason string) error { return engine.Drop(reason) }

// An Error says which operation failed, and for which topic and group.
type Error struct {
	Op           string // "subscribe", "declare", "ready", or "open" and the scheme of the URL, such as "open redis"
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

// errorText returns "eventbus: call: err". If the text of err contains call as well, errorText
// removes it there, so that it appears only once.
func errorText(call string, err error) string {
	cause := strings.TrimPrefix(err.Error(), "eventbus: ")
	return "eventbus: " + call + ": " + strings.ReplaceAll(cause, ": "+call+": ", ": ")
}

// Unwrap returns Err, the cause.
func (e *Error) Unwrap() error { return e.Err }

// A FieldError says which field of an option or an event is wrong, and why. The call that returns
// it has had no effect: it has not stored an event or made a bus or subscription.
type FieldError struct {
	Field  string // such as "SubscribeOptions.Lease"
	Reason string
	Err    error // the class of the error, such as ErrTooLarge; may be nil
}

func (e *FieldError) Error() string { return "eventbus: " + e.Field + " " + e.Reason }

// Unwrap returns Err, the class of the error.
func (e *FieldError) Unwrap() error { return e.Err }

// A PublishError says which events of a Publish call failed. A failed event is not stored, or its
// outcome is unknown.
type PublishError struct {
	Topic  string
	Errors []error // Errors[i] is the error of event i, or nil if the event is stored
}

func (e *PublishError) Error() string {
	return errorText("publish "+e.Topic, backend.BatchError(e.Errors))
}

// Unwrap returns the errors of the events that failed.
func (e *PublishError) Unwrap() []error { return backend.BatchError(e.Errors).Unwrap() }

// A DrainError says how many events were still held when the context of a Shutdown or Drain
// ended. These events are redelivered to other members when their leases expire.
type DrainError struct {
	Abandoned []Abandoned
	Err       error // another failure of the drain; may be nil
}

// Abandoned counts the events that one subscription still held when its drain ended.
type Abandoned struct {
	Topic, Group string
	Handlers     int // handlers that were still running
	Unsettled    int // events without a running handler that were neither acknowledged nor given back
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
