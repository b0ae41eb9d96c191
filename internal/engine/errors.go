package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/publish"
)

// ErrSettled: the delivery was settled before.
var ErrSettled = errors.New("eventbus: already settled")

// ErrShutdown is the cause with which a drain that ran out of time cancels handlers.
var ErrShutdown = errors.New("eventbus: shutting down")

// ErrBackpressure: too much waits to be published.
var ErrBackpressure = publish.ErrBackpressure

// ErrDropped: the message was dropped because too much waits to be published.
var ErrDropped = publish.ErrDropped

// errLeaseLost is the cause with which a handler is cancelled after its lease was lost.
func errLeaseLost(why error) error {
	if why == nil || errors.Is(why, backend.ErrLeaseLost) {
		return fmt.Errorf("eventbus: %w", backend.ErrLeaseLost)
	}
	return fmt.Errorf("eventbus: %w: %w", backend.ErrLeaseLost, why)
}

// Abandoned says how many events a drain left behind.
type Abandoned struct {
	Topic, Group string
	Handlers     int // still running; their leases expire
	Unsettled    int // held, but neither acknowledged nor given back
}

// errNack is the cause of a Nack without a cause.
var errNack = errors.New("eventbus: not acknowledged")

// errNoVerdict is why an event is dead-lettered without a run: it was delivered many times,
// and no run has ended with a result.
var errNoVerdict = errors.New("without a verdict")

func errTooOften(h *Hold) error {
	return fmt.Errorf("eventbus: handed out %d times %w", h.attempt, errNoVerdict)
}

// unknown says that a call may or may not have had its effect.
func unknown(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }
