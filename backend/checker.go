package backend

import (
	"context"
	"fmt"
)

// A Checker is a [Backend] that can tell which settings of its broker, and which states of
// it, endanger events.
type Checker interface {
	// Check looks at the broker and returns its findings, in any order. It changes nothing,
	// and makes a bounded number of calls. It returns a Finding too for a part of the broker
	// that does not answer, or that this client may not look at. If no part answers, Check
	// returns an error.
	Check(ctx context.Context) ([]Finding, error)
}

// Check calls [Checker].Check of b. If b is no Checker the error matches
// [errors.ErrUnsupported].
func Check(ctx context.Context, b Backend) ([]Finding, error) {
	if c, ok := As[Checker](b); ok {
		return c.Check(ctx)
	}
	return nil, missing("check its broker")
}

// A Finding is a danger for events, for operators.
type Finding struct {
	Code     string // names the rule, such as "redis-evicts"; a code never changes its meaning
	Severity Severity

	// Server, Topic and Group are the place. Server names a server, or a stream or a file of
	// it. A field that does not apply is empty. No field of a Finding has a password.
	Server, Topic, Group string

	Text    string   // the danger, with its figures
	Remedy  string   // the thing that an operator can do
	Command []string // a program and its arguments that do it; empty: there is none
}

// A Severity says how urgent a [Finding] is.
type Severity int

// The severities.
const (
	SeverityNote    Severity = iota // an operator should know it, and may want it so
	SeverityWarning                 // events are in danger if something else fails, or wait for an operator
	SeverityError                   // events are lost, or are not handled, or can be lost at any time
)

// String returns "note", "warning" or "error".
func (s Severity) String() string {
	switch s {
	case SeverityNote:
		return "note"
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return fmt.Sprintf("severity %d", int(s))
}

// A FindingError is the error of a driver that refuses a broker because of a Finding. It
// matches [ErrRefused].
type FindingError struct{ Finding Finding }

func (e *FindingError) Error() string {
	return ErrRefused.Error() + ": " + e.Finding.Text + "; " + e.Finding.Remedy
}

// Is reports whether target is [ErrRefused].
func (e *FindingError) Is(target error) bool { return target == ErrRefused }
