package backend

import "context"

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic that are stored after the position from,
	// oldest first. If from is "", Read begins with the oldest message kept. Read does not
	// wait, and returns no message only at the end of the topic. It leaves out a message
	// whose body is lost. If a body cannot be decoded, Payload has the raw bytes. If topic
	// does not exist the error is [ErrGone]. The caller may keep and change the messages.
	Read(ctx context.Context, topic, from string, max int) ([]Message, error)
}

// Read calls [Reader].Read of b. If b is no Reader the error matches
// [errors.ErrUnsupported].
func Read(ctx context.Context, b Backend, topic, from string, max int) ([]Message, error) {
	if r, ok := As[Reader](b); ok {
		return r.Read(ctx, topic, from, max)
	}
	return nil, missing("read topics")
}
