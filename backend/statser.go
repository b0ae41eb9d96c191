package backend

import (
	"context"
	"time"
)

// A Statser is a [Backend] that can describe a group.
type Statser interface {
	// Stats describes a group. If the topic or group does not exist the error is [ErrGone].
	Stats(ctx context.Context, topic, group string) (Stats, error)
}

// Unknown is the value of a number in [Stats] that the backend does not know for certain.
const Unknown = -1

// Stats describes one group at one moment. A number is exact or [Unknown]. Lag and Unacked
// together are the messages that the group has not settled. A message whose lease or delay is
// over still counts as InFlight or Delayed, until a member receives it.
type Stats struct {
	Depth    int64 // messages that the topic keeps
	Lag      int64 // messages after the start of this group that were never delivered to it
	Unacked  int64 // messages that were delivered and are not acknowledged: InFlight and Delayed
	InFlight int64 // messages held by a member
	Delayed  int64 // messages that were given back, and not redelivered since
	Members  int64 // members attached now

	// Oldest is when the oldest unacknowledged message of this group was stored. Held and
	// delayed messages count. Oldest is zero if no message is unacknowledged.
	Oldest time.Time
}

// StatsOf calls [Statser].Stats of b. If b is no Statser the error matches
// [errors.ErrUnsupported].
func StatsOf(ctx context.Context, b Backend, topic, group string) (Stats, error) {
	if s, ok := As[Statser](b); ok {
		return s.Stats(ctx, topic, group)
	}
	return Stats{}, missing("describe groups")
}
