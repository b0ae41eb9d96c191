package backend

import (
	"context"
	"time"
)

// A Maintainer is a [Backend] that needs regular work on its topics and groups. The bus
// calls Maintain for each topic and group of its subscriptions. Calls of one bus for the
// same topic and group do not overlap; calls of other buses may.
type Maintainer interface {
	// Maintain does one bounded piece of work. For example, it trims messages that every
	// group has settled, or removes members that have died. It never trims a message that a
	// group has not settled, even if the group has no member. It returns the time until the
	// next call, at least 100 ms. The bus raises a shorter time. After an error it tells the
	// observer, ignores next, and waits with a back-off.
	Maintain(ctx context.Context, topic, group string) (next time.Duration, err error)
}
