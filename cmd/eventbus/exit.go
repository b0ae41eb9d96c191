package main

import (
	"errors"

	"github.com/seed41896749/eventbus/service"
)

// An exitError is an error with an exit code of its own, see [service.Outcome.ExitCode].
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// exitCode returns the exit code for the result of a command.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if err != nil {
		return service.ExitErrors
	}
	return service.ExitClean
}
