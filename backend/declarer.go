package backend

import (
	"context"
)

// A Declarer is a [Backend] that can create a topic ahead of its first message.
type Declarer interface {
	// Declare creates topic if it does not exist, and otherwise changes nothing. It returns
	// [ErrDenied] if this client may not publish to the topic. The bus declares dead-letter
	// topics, so that Subscribe reports a missing permission before the first dead letter
	// needs it.
	Declare(ctx context.Context, topic string) error
}

// Declare creates topic in b if it does not exist. If b is no [Declarer] the error
// matches [errors.ErrUnsupported].
func Declare(ctx context.Context, b Backend, topic string) error {
	if d, ok := As[Declarer](b); ok {
		return d.Declare(ctx, topic)
	}
	return missing("declare a topic")
}
