package backend

import "context"

// A Pinger is a [Backend] that can tell whether its broker answers.
type Pinger interface {
	// Ping makes one round trip to the broker, and fails if no answer comes.
	Ping(ctx context.Context) error
}

// Ping makes one round trip to the broker of b. If b is no [Pinger] the error matches
// [errors.ErrUnsupported].
func Ping(ctx context.Context, b Backend) error {
	if p, ok := As[Pinger](b); ok {
		return p.Ping(ctx)
	}
	return missing("be pinged")
}
