package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/publish"
)

// ErrSettled means that the delivery was already settled.
var ErrSettled = errors.New("eventbus: already settled")

// ErrShutdown is the cause with which a drain that ran out of time cancels handlers.
var ErrShutdown = errors.New("eventbus: shutting down")

// ErrBackpressure is [publish.ErrBackpressure].
var ErrBackpressure = publish.ErrBackpressure

// ErrDropped is [publish.ErrDropped].
var ErrDropped = publish.ErrDropped

// errLeaseLost returns the error for a lost lease; why is the reason, or nil. The error
// matches backend.ErrLeaseLost. It is also the cause with which the handler's context ends.
func errLeaseLost(why error) error {
	switch {
	case why == nil:
		why = backend.ErrLeaseLost
	case !errors.Is(why, backend.ErrLeaseLost):
		why = fmt.Errorf("%w: %w", backend.ErrLeaseLost, why)
	}
	return fmt.Errorf("eventbus: %w", why)
}

// Abandoned says how many events a drain left behind.
type Abandoned struct {
	Topic, Group string
	Handlers     int // handlers that still run; the leases of their events expire
	Unsettled    int // events that are held, neither acknowledged nor given back
}

// errNack is the error of a run that the program has settled by Nack without a cause.
var errNack = errors.New("eventbus: not acknowledged")

// errTooOften is the reason to dead-letter h without a run: h was delivered many times, and
// no run has ended with a result.
func errTooOften(h *Hold) error {
	return unrun(ReasonNoVerdict, fmt.Errorf("eventbus: handed out %d times without a verdict", h.attempt))
}

// unknown wraps err as backend.ErrUnknownOutcome, because the failed call may have had its
// effect.
func unknown(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }
