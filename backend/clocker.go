package backend

import (
	"context"
	"time"
)

// A Clocker is a [Backend] that tells the time of its broker. The bus publishes scheduled
// events by this clock, because the clocks of processes may be wrong.
type Clocker interface {
	// Now returns the present time of the clock that gives the messages of topic their time
	// of storing. If topic does not exist, the error may be [ErrGone].
	Now(ctx context.Context, topic string) (time.Time, error)
}

// Now calls [Clocker].Now of b. If b is no Clocker the result is the time of this process.
func Now(ctx context.Context, b Backend, topic string) (time.Time, error) {
	if c, ok := As[Clocker](b); ok {
		return c.Now(ctx, topic)
	}
	return time.Now(), nil
}
