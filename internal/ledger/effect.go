package ledger

import (
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

// An Effect is something the ledger wants its caller to do.
type Effect struct {
	Kind    Kind
	Hold    *Hold
	Run     any     // for EndRun
	Source  *Source // for EndRead, ReadMore and Emptied
	Running bool    // for Lost and Stuck: a handler is running
	Err     error
	For     time.Duration
}

// A Kind is the kind of an Effect.
type Kind uint8

// The kinds of Effect.
const (
	GiveBack Kind = iota // give Hold back with Delay, as Hold.Due and Hold.Counted say
	Refuse               // settle Hold without a run, because it is unfit
	TimedOut             // settle Hold as a run that timed out; nobody else settles it
	Again                // repeat the call that settles Hold
	EndRun               // end the context of Run with Err
	Lost                 // the lease of Hold is lost because of Err, which is nil if the lease simply wasn't extended
	Stuck                // the handler of Hold has been running for For, far beyond its timeout
	Unstuck              // a stuck handler has returned
	Extend               // extend leases, see Extendable and Answered
	EndRead              // cut the current Receive of Source short
	ReadMore             // the fetcher of Source may read again
	Emptied              // Source has ended, and its last Hold is gone
	Crowded              // Stats.Crowded has changed
)

// Effects collects what the caller has to do next.
type Effects struct {
	Acks      []*Hold // Holds to acknowledge
	FlushAcks bool    // acknowledge them now instead of waiting for more
	Rest      []Effect
	Wake      []*Worker
	Start     int // workers to start
	Freed     limiter.Released
}

func (l *Ledger) do(e Effect) {
	if e.Kind == Lost || e.Kind == Stuck {
		e.Hold.inEffect = true
	}
	l.Out.Rest = append(l.Out.Rest, e)
}
