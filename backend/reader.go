package backend

import "context"

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic that are stored after the position
	// from, oldest first. If from is "" it begins with the oldest message kept. The
	// caller may keep and change the messages. Read does not wait: at the end of the
	// topic it returns none. If topic does not exist the error is [ErrGone]. A message
	// whose body is lost is left out. The Payload of an unreadable one is its raw body.
	Read(ctx context.Context, topic, from string, max int) ([]Message, error)
}

// Read calls the [Reader] of b. If b is no Reader the error matches
// [errors.ErrUnsupported].
func Read(ctx context.Context, b Backend, topic, from string, max int) ([]Message, error) {
	if r, ok := As[Reader](b); ok {
		return r.Read(ctx, topic, from, max)
	}
	return nil, missing("read topics")
}
