package groupstats

import (
	"time"
)

// A Status sums up how a group is doing. A higher Status needs more attention.
type Status int

const (
	OK        Status = iota // it has settled all but young events
	Paused                  // an operator has paused it
	Unknown                 // the backend does not describe it
	Behind                  // its oldest unsettled event is old, but it is not Stuck
	NoMembers               // no process handles its events
	Stuck                   // its oldest unsettled event is old, and it has made no progress for long
	Losing                  // the topic no longer has all events that the group has not settled
)

// Statuses holds all values, the worst first.
var Statuses = []Status{Losing, Stuck, NoMembers, Behind, Unknown, Paused, OK}

// String returns the status as one or two words.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Paused:
		return "paused"
	case Behind:
		return "behind"
	case NoMembers:
		return "no members"
	case Stuck:
		return "stuck"
	case Losing:
		return "losing"
	}
	return "unknown"
}

// Explain explains the status to operators, in a sentence or two.
func (s Status) Explain() string {
	switch s {
	case OK:
		return "The group keeps up."
	case Paused:
		return "An operator has paused the group, and its members get no events until it is resumed."
	case Behind:
		return "The oldest event has been waiting for long, or waits for another attempt. The group is still making progress."
	case NoMembers:
		return "No process is attached to the group, so nobody handles its events."
	case Stuck:
		return "The oldest event has been waiting for long, and the group makes no progress with its oldest events. A handler hangs, or an event fails every time."
	case Losing:
		return "The topic no longer has all events that the group has not settled. A limit of the broker, or somebody, removed them."
	}
	return "The backend does not report how the group is doing."
}

// Still is how long a group must make no progress to be Stuck, unless Options.Stuck is shorter.
const Still = time.Minute

// evidence is what the status of a group depends on.
type evidence struct {
	stats        *Stats
	paused       bool
	lost         bool          // events are missing, in two consecutive rounds
	idle         time.Duration // how long no progress was seen
	age          time.Duration // of the oldest event
	behind, late time.Duration // the ages at which a group is Behind and Stuck
}

// judge decides the status of a group.
func judge(e *evidence) Status {
	s := e.stats
	switch {
	case e.lost:
		return Losing
	case e.paused:
		return Paused
	case !s.Told:
		return Unknown
	case s.Members == 0:
		return NoMembers
	case e.age >= e.late && e.idle >= min(Still, e.late) && !s.RetriesOnly():
		return Stuck
	case e.age >= e.behind:
		return Behind
	case s.Oldest.IsZero() && !s.Lag.Known(): // nothing shows that it keeps up
		return Unknown
	}
	return OK
}
