package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// A signal is the error of Permanent, RetryAfter, Snooze, Discard or Expired, through which a
// handler chooses the verdict. With a NotRunError inside, it says that no handler ran, which is how
// code before the handler settles an event without a run.
type signal struct {
	kind   signalKind
	after  time.Duration
	reason string // set for permanent and drop
	err    error
}

type signalKind int

const (
	permanent signalKind = iota
	retryAfter
	snooze
	drop
)

func (s *signal) Error() string { return s.err.Error() }

func (s *signal) Unwrap() error { return s.err }

// Permanent wraps err to mean that the event has failed permanently and gets no further attempts.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &signal{kind: permanent, reason: ReasonPermanent, err: err}
}

// RetryAfter wraps err to mean that the next attempt comes after d instead of [Plan].After.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		err = Named("retry", errors.New("retry"))
	}
	return &signal{kind: retryAfter, after: max(d, 0), err: err}
}

// Snooze returns an error that delays the event by d. The run does not count as an attempt.
func Snooze(d time.Duration) error {
	return &signal{kind: snooze, after: max(d, 0), err: errors.New("snoozed for " + max(d, 0).String())}
}

// Drop returns an error that discards the event: the bus acknowledges it, without a dead
// letter.
func Drop(reason string) error {
	return Discard(ReasonDropped, errors.New("dropped: "+reason))
}

// Discard is like Drop, with a different reason and error.
func Discard(reason string, err error) error {
	return &signal{kind: drop, reason: reason, err: err}
}

// unrun returns an error that dead-letters an event without a run.
func unrun(reason string, err error) error {
	return &signal{kind: permanent, reason: reason, err: &observer.NotRunError{Err: err}}
}

// isUnrun reports whether err means that no handler ran.
func isUnrun(err error) bool {
	_, ok := errors.AsType[*observer.NotRunError](err)
	return ok
}

// isFailure reports whether a run with the result err has failed. Snooze and Drop are not failures,
// because the handler chose them.
func isFailure(err error) bool {
	if err == nil || isUnrun(err) {
		return false
	}
	s, marked := errors.AsType[*signal](err)
	return !marked || s.kind != snooze && s.kind != drop
}

// Waited returns the error for an event that has waited too long for its run. The event is due
// again immediately.
func Waited() error {
	return &signal{kind: snooze, err: &observer.NotRunError{Err: errors.New("eventbus: waited too long for a run")}}
}

// Expired returns the error for an event that did not run because it expired at the given
// time. If bury is set, the event becomes a dead letter; otherwise it is discarded.
func Expired(at time.Time, bury bool) error {
	err := fmt.Errorf("eventbus: expired at %v", at.UTC().Format(time.RFC3339Nano))
	s := &signal{kind: drop, reason: ReasonExpired, err: &observer.NotRunError{Err: err}}
	if bury {
		s.kind = permanent
	}
	return s
}

// ErrorType returns the error.type of a signal for telemetry. It is "" for a signal that is a
// failure, so that telemetry uses the wrapped error.
func (s *signal) ErrorType() string {
	switch s.kind {
	case snooze:
		return "snooze"
	case drop:
		return "drop"
	}
	return ""
}
