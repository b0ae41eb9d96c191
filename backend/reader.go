package backend

import "context"

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic that are stored after the position
	// from, oldest first. If from is "" it begins with the oldest message kept. The
	// messages are the caller's, to keep and to change. Read does not wait: at the end
	// of the topic it returns none. A topic that does not exist is [ErrGone]. A message
	// whose body is lost is left out. The Payload of an unreadable one is its raw body.
	Read(ctx context.Context, topic, from string, max int) ([]Message, error)
}

// Read reads messages of b. If b has no [Reader] the error matches
// [errors.ErrUnsupported].
func Read(ctx context.Context, b Backend, topic, from string, max int) ([]Message, error) {
	if r, ok := As[Reader](b); ok {
		return r.Read(ctx, topic, from, max)
	}
	return nil, missing("read topics")
}
