package engine

import (
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/publish"
)

// ErrSettled means that the delivery was already settled.
var ErrSettled = ledger.ErrSettled

// ErrShutdown is the cause with which a drain that ran out of time cancels handlers.
var ErrShutdown = ledger.ErrNotStarted

// ErrInHandler means that a drain was begun with the context of a running handler.
var ErrInHandler = errors.New("eventbus: called in a handler, for which it would wait: end the context of Run instead, or call it elsewhere")

// ErrBackpressure is [publish.ErrBackpressure].
var ErrBackpressure = publish.ErrBackpressure

// ErrDropped is [publish.ErrDropped].
var ErrDropped = publish.ErrDropped

// errLeaseLost is [ledger.LeaseLost]. It is also the cause with which the handler's context
// ends.
func errLeaseLost(why error) error { return ledger.LeaseLost(why) }

// Abandoned says how many events a drain left behind.
type Abandoned struct {
	Topic, Group string
	Handlers     int // handlers that still run; the leases of their events expire
	Unsettled    int // events that are held, neither acknowledged nor given back
}

// errNack is the error of a run that the program has settled by Nack without a cause.
var errNack = Named("nack", errors.New("eventbus: not acknowledged"))

// errTooOften is the reason to dead-letter h without a run: h was delivered many times, and
// no run has ended with a result.
func errTooOften(h *Hold) error {
	return unrun(ReasonNoVerdict, fmt.Errorf("eventbus: handed out %d times without a verdict", h.Attempt))
}

func unknown(err error) error { return ledger.Unknown(err) }

// passes reports whether a call that has failed with err may succeed later, without a change by
// anybody.
func passes(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
}
