package backend

import "context"

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic, oldest first. It begins where a group with
	// the Start from would begin. With a [StartAfter] of a position that the topic has not
	// reached, it returns none. Read does not
	// wait, and returns no message only at the end of the topic. It leaves out a message
	// whose body is lost. If a body cannot be decoded, Payload has the raw bytes. If topic
	// does not exist the error is [ErrGone]. The caller may keep and change the messages.
	Read(ctx context.Context, topic string, from Start, max int) ([]Message, error)
}

// Read calls [Reader].Read of b. If b is no Reader the error matches
// [errors.ErrUnsupported].
func Read(ctx context.Context, b Backend, topic string, from Start, max int) ([]Message, error) {
	if r, ok := As[Reader](b); ok {
		return r.Read(ctx, topic, from, max)
	}
	return nil, missing("read topics")
}
