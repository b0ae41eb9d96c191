package ledger

import (
	"time"

	"github.com/seed41896749/eventbus/limiter"
)

// An Effect is an action that the caller of a Ledger carries out.
type Effect struct {
	Kind    Kind
	Hold    *Hold
	Run     any     // for EndRun
	Source  *Source // for EndRead, Room and Emptied
	Running bool    // for Lost and Stuck: a handler runs
	Err     error
	For     time.Duration
}

// A Kind is a kind of Effect.
type Kind uint8

// The kinds of Effect.
const (
	GiveBack Kind = iota // Hold is to be given back by Delay, as Hold.Due and Hold.Counted say
	Refuse               // Hold is to be settled without a run: it is unfit
	TimedOut             // Hold is to be settled as a run that timed out; nobody else settles it
	Again                // the call that settles Hold is to be repeated
	EndRun               // the context of Run is to end with Err
	Lost                 // the lease of Hold is lost, because of Err; nil: it was not extended
	Stuck                // the handler of Hold runs for For, far beyond its timeout
	Unstuck              // a stuck handler has returned
	Extend               // leases are to be extended, see Extendable and Extended
	EndRead              // the Receive of Source under way is to end
	ReadMore             // the fetcher of Source may read again
	Emptied              // Source, which has ended, has no Hold any more
	Crowded              // Stats.Crowded has changed
)

// Effects are what the caller has to do next.
type Effects struct {
	Acks      []*Hold // to be acknowledged
	FlushAcks bool    // now, without waiting for further ones
	Rest      []Effect
	Wake      []*Worker
	Start     int // workers
	Freed     limiter.Released
}

func (l *Ledger) do(e Effect) {
	if e.Kind == Lost || e.Kind == Stuck {
		e.Hold.inEffect = true
	}
	l.Out.Rest = append(l.Out.Rest, e)
}
