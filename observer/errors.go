package observer

import (
	"context"
	"fmt"
	"time"
)

// A TimeoutError is the cause with which a handler is cancelled that ran too
// long.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("eventbus: handler ran longer than %v", e.After)
}

// Is makes it match context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout marks it as one for package net's interface.
func (e *TimeoutError) Timeout() bool { return true }

// A PanicError is what a handler that panicked, or ended its goroutine, is taken
// to have returned.
type PanicError struct {
	Value any    // nil if the handler called runtime.Goexit
	Stack []byte // of the handler
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "eventbus: handler called runtime.Goexit"
	}
	return fmt.Sprintf("eventbus: handler panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
