package backend

import (
	"context"
)

// A Declarer is a [Backend] that can create a topic ahead of its first message.
type Declarer interface {
	// Declare creates topic as needed. To declare a topic again changes nothing. Declare
	// returns [ErrDenied] if this client may not publish to the topic. The bus declares
	// dead-letter topics, so that a missing permission shows at start and not with the
	// first dead letter.
	Declare(ctx context.Context, topic string) error
}

// Declare creates topic in b as needed. If b has no [Declarer] the error matches
// [errors.ErrUnsupported].
func Declare(ctx context.Context, b Backend, topic string) error {
	if d, ok := As[Declarer](b); ok {
		return d.Declare(ctx, topic)
	}
	return missing("declare a topic")
}
