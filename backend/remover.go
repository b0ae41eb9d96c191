package backend

import "context"

// A Remover is a [Backend] that can remove single messages from a topic, such as dead
// letters that were sent again.
type Remover interface {
	// Remove removes the messages of topic at these positions, for readers and for every
	// group. A group that has not settled a removed message no longer gets it, or gets a
	// delivery whose Err matches [ErrGone]. The member that holds a removed message may
	// still settle it. A removed message takes no room: a store that was full may store
	// another. A position without a message is no error, so that a call whose
	// outcome is unknown can be repeated. If topic does not exist the error is [ErrGone].
	Remove(ctx context.Context, topic string, positions []string) error
}

// Remove calls [Remover].Remove of b. If b is no Remover the error matches
// [errors.ErrUnsupported].
func Remove(ctx context.Context, b Backend, topic string, positions []string) error {
	if r, ok := As[Remover](b); ok {
		return r.Remove(ctx, topic, positions)
	}
	return missing("remove messages")
}
