package main

import "errors"

// The exit codes of the command.
const (
	exitClean   = 0
	exitFailed  = 1
	exitKilled  = 2 // sub: a command was killed
	exitDrained = 3 // sub: the time for the drain was over, and commands were killed or events were left
)

// An exitError is an error with an exit code of its own.
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
		return exitFailed
	}
	return exitClean
}
