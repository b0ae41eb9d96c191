package groupstats

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Count is a number, or [backend.Unknown].
type Count int64

// Known reports whether c is a number.
func (c Count) Known() bool { return c >= 0 }

// String returns the number as text, or "unknown".
func (c Count) String() string {
	if c < 0 {
		return "unknown"
	}
	return strconv.FormatInt(int64(c), 10)
}

// MarshalJSON returns the number, or null if it is unknown.
func (c Count) MarshalJSON() ([]byte, error) {
	if c < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(c))
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (c *Count) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*c = backend.Unknown
		return nil
	}
	return json.Unmarshal(data, (*int64)(c))
}

// plus adds two counts. The sum is unknown if one of them is.
func (c Count) plus(d Count) Count {
	if !c.Known() || !d.Known() {
		return backend.Unknown
	}
	return c + d
}

// Stats are the numbers of a group, over all partitions or in one of them.
type Stats struct {
	Depth    Count `json:"depth"`     // events that the topic keeps
	Lag      Count `json:"lag"`       // not yet delivered to the group
	Unacked  Count `json:"unacked"`   // delivered and not settled: in flight and delayed
	InFlight Count `json:"in_flight"` // held by a member
	Delayed  Count `json:"delayed"`   // waiting for another attempt
	Members  Count `json:"members"`   // attached now

	// Oldest is when the oldest unsettled event was stored, or zero if none is unsettled.
	Oldest time.Time `json:"oldest,omitzero"`

	// Told is false if the backend did not describe the group. Then Oldest is unknown too.
	Told bool `json:"-"`
}

// StatsOf converts the stats that a backend has returned.
func StatsOf(s backend.Stats) Stats {
	return Stats{Count(s.Depth), Count(s.Lag), Count(s.Unacked), Count(s.InFlight), Count(s.Delayed), Count(s.Members), s.Oldest, true}
}

// Untold are the stats of a group that the backend does not describe.
var Untold = Stats{Depth: backend.Unknown, Lag: backend.Unknown, Unacked: backend.Unknown, InFlight: backend.Unknown, Delayed: backend.Unknown, Members: backend.Unknown}

// describe asks the backend for the stats of a group. They are Untold if the backend cannot describe groups.
func describe(ctx context.Context, b backend.Backend, topic, group string) (Stats, error) {
	s, err := backend.StatsOf(ctx, b, topic, group)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return Untold, nil
	case err != nil:
		return Untold, err
	}
	return StatsOf(s), nil
}

// pauseOf returns a group's pause, or nil if the group is not paused.
func pauseOf(ctx context.Context, p backend.Pauser, topic, group string) (*backend.Pause, error) {
	pause, err := p.Paused(ctx, topic, group)
	if err != nil || pause.Since.IsZero() {
		return nil, err
	}
	return &pause, nil
}

// add adds the stats of another partition. A member may own any number of partitions, so Members is the highest number
// rather than the sum.
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

// RetriesOnly reports whether all unsettled events are waiting for another attempt.
func (s *Stats) RetriesOnly() bool { return s.Lag == 0 && s.InFlight == 0 && s.Delayed > 0 }

// unsettled returns how many events the group has not settled, as far as that is known.
func (s *Stats) unsettled() Count { return max(s.Lag, 0) + max(s.Unacked, 0) }

// lost reports whether the topic has fewer events than the group has left to settle. A backend that knows only the sum of
// InFlight and Delayed takes its counts at different moments; the sum is then left out, as a margin.
func (s *Stats) lost() bool {
	unsettled := max(s.Lag, 0) + max(s.InFlight, 0) + max(s.Delayed, 0)
	return s.Depth.Known() && unsettled > s.Depth
}
