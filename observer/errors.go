package observer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrorText returns the text of err for a record, without the prefix "eventbus: ", or "" if err is
// nil. The error may be a type of the program: if its method Error panics, ErrorText returns a text
// about the panic.
func ErrorText(err error) string { return strings.TrimPrefix(text(err), "eventbus: ") }

// A TimeoutError is the cause with which a handler's context ends when the handler's timeout has
// passed.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("eventbus: handler ran longer than %v", e.After)
}

// Is makes a TimeoutError match context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout returns true, as the Timeout method of a [net.Error] does for timeouts.
func (e *TimeoutError) Timeout() bool { return true }

// A NotRunError is the error of an event that never reached its handler, such as an expired event
// or, with SubscribeBatch, one that waited too long for its batch. Middleware must not turn it into
// nil, because nil acknowledges the event.
type NotRunError struct{ Err error }

func (e *NotRunError) Error() string { return e.Err.Error() }
func (e *NotRunError) Unwrap() error { return e.Err }

// A PanicError is the error of a function that panicked or called runtime.Goexit. If it was a
// handler, the event fails as if the handler had returned this error.
type PanicError struct {
	Where string // the function that panicked, such as "driver's Publish"; "" means the handler
	Value any    // the value of the panic; nil if the function called runtime.Goexit
	Stack []byte // the stack of the function, as from debug.Stack
}

func (e *PanicError) Error() string {
	where := cmp.Or(e.Where, "handler")
	if e.Value == nil {
		return fmt.Sprintf("eventbus: %s called runtime.Goexit", where)
	}
	return fmt.Sprintf("eventbus: %s panicked: %v", where, e.Value)
}

var errNone = errors.New("matches no error")

// Unwrap returns the panic's value if it is an error, and nil otherwise. It also returns nil if
// errors.Is or errors.As would panic with this error, as may happen with a nil pointer.
func (e *PanicError) Unwrap() (err error) {
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	err, _ = e.Value.(error)
	_ = errors.Is(err, errNone)
	_, _ = errors.AsType[*PanicError](err)
	return err
}
