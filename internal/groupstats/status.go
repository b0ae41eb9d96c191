package groupstats

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Status says in a word how a group is doing. A greater Status needs more attention.
type Status int

// The words for groups.
const (
	OK        Status = iota // it has settled all events, but for young ones
	Paused                  // an operator has paused it
	Unknown                 // the backend does not describe it
	Behind                  // its oldest unsettled event is old, and is not Stuck
	NoMembers               // no process handles its events
	Stuck                   // its oldest unsettled event is old, and there was no progress for long
	Losing                  // the topic no longer has all events that the group has not settled
)

// Statuses has all words, the worst first.
var Statuses = []Status{Losing, Stuck, NoMembers, Behind, Unknown, Paused, OK}

// String returns the word.
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

// Explain returns a sentence about the word, for operators.
func (s Status) Explain() string {
	switch s {
	case OK:
		return "The group keeps up."
	case Paused:
		return "An operator has paused the group. Its members get no events meanwhile."
	case Behind:
		return "The oldest event waits for long, or waits for another attempt. The group still moves."
	case NoMembers:
		return "No process is attached to the group, so nobody handles its events."
	case Stuck:
		return "The oldest event has waited for long, and the group makes no progress with its oldest events. A handler hangs, or an event fails each time."
	case Losing:
		return "The topic no longer has all events that the group has not settled. A limit of the broker, or somebody, has removed them."
	}
	return "The backend does not tell how the group is doing."
}

// Still is how long a stuck group has made no progress, or Options.Stuck if that is shorter.
const Still = time.Minute

// evidence is the knowledge about a group on which its status depends.
type evidence struct {
	stats        *Stats
	paused       bool
	lost         bool          // events are missing, in two rounds one after another
	idle         time.Duration // how long no progress was seen
	age          time.Duration // of the oldest event
	behind, late time.Duration // the ages from which a group is Behind, and Stuck
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
	case s.Oldest.IsZero() && !s.Lag.Known(): // neither figure shows that it keeps up
		return Unknown
	}
	return OK
}

// Stats are the figures of a group, or of a group in one partition.
type Stats struct {
	Depth    Count `json:"depth"`     // events that the topic keeps
	Lag      Count `json:"lag"`       // not yet delivered to the group
	Unacked  Count `json:"unacked"`   // delivered and not settled: in flight and delayed
	InFlight Count `json:"in_flight"` // held by a member
	Delayed  Count `json:"delayed"`   // waiting for another attempt
	Members  Count `json:"members"`   // attached now

	// Oldest is when the oldest unsettled event was stored; zero: none is unsettled.
	Oldest time.Time `json:"oldest,omitzero"`

	// Told is false if the backend did not describe the group. Then Oldest is unknown too.
	Told bool `json:"told"`
}

// StatsOf returns s as figures that the backend has told.
func StatsOf(s backend.Stats) Stats {
	return Stats{Count(s.Depth), Count(s.Lag), Count(s.Unacked), Count(s.InFlight), Count(s.Delayed), Count(s.Members), s.Oldest, true}
}

// Untold are the figures of a group that the backend does not describe.
var Untold = Stats{Depth: backend.Unknown, Lag: backend.Unknown, Unacked: backend.Unknown, InFlight: backend.Unknown, Delayed: backend.Unknown, Members: backend.Unknown}

// add adds the figures of another partition. A member may own any number of partitions, so Members is
// the greatest number.
func (s *Stats) add(p Stats) {
	s.Depth, s.Lag = s.Depth.plus(p.Depth), s.Lag.plus(p.Lag)
	s.Unacked = s.Unacked.plus(p.Unacked)
	s.InFlight, s.Delayed = s.InFlight.plus(p.InFlight), s.Delayed.plus(p.Delayed)
	if s.Members.Known() && p.Members.Known() {
		s.Members = max(s.Members, p.Members)
	} else {
		s.Members = backend.Unknown
	}
	s.Told = s.Told && p.Told
	if !p.Oldest.IsZero() && (s.Oldest.IsZero() || p.Oldest.Before(s.Oldest)) {
		s.Oldest = p.Oldest
	}
}

// RetriesOnly reports whether all unsettled events wait for another attempt.
func (s *Stats) RetriesOnly() bool { return s.Lag == 0 && s.InFlight == 0 && s.Delayed > 0 }

// unsettled returns how many events the group has not settled, as far as it is known.
func (s *Stats) unsettled() Count { return max(s.Lag, 0) + max(s.Unacked, 0) }

// lost reports whether the topic has fewer events than the group has not settled. A backend that
// knows only the sum of InFlight and Delayed counts at several moments; the sum is left out then,
// as a margin.
func (s *Stats) lost() bool {
	unsettled := max(s.Lag, 0) + max(s.InFlight, 0) + max(s.Delayed, 0)
	return s.Depth.Known() && unsettled > s.Depth
}
