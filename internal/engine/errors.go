package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// ErrSettled: the delivery was settled before.
var ErrSettled = errors.New("eventbus: already settled")

// ErrShutdown is the cause with which a drain that ran out of patience cancels
// handlers.
var ErrShutdown = errors.New("eventbus: shutting down")

// ErrBackpressure: too much waits to be published.
var ErrBackpressure = errors.New("eventbus: too many events wait to be published")

// errLeaseLost is the cause with which a handler is cancelled whose lease was
// lost.
func errLeaseLost(why error) error {
	if why == nil || errors.Is(why, backend.ErrLeaseLost) {
		return fmt.Errorf("eventbus: %w", backend.ErrLeaseLost)
	}
	return fmt.Errorf("eventbus: %w: %w", backend.ErrLeaseLost, why)
}

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

// An AbandonedError tells what a drain had to leave behind.
type AbandonedError struct {
	Topic, Group string
	Handlers     int // still running; their leases run out
	Unsettled    int // held, but neither acknowledged nor given back
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("%s/%s: %d handlers still running, %d events unsettled", e.Topic, e.Group, e.Handlers, e.Unsettled)
}

// errNack is the cause of a Nack that gives none.
var errNack = errors.New("eventbus: not acknowledged")
