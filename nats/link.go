package nats

import (
	"context"
	"sync/atomic"
)

// A link is what is known of how the client library makes connections.
type link struct {
	connecting atomic.Bool     // it makes one, and holds up whoever asks it for anything
	life       context.Context // ends when it is to make no more
	end        context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.life, l.end = context.WithCancel(context.Background()) //nolint:forbidigo // connections outlive the call that opens the backend
	return l
}

// isConnecting reports whether the client library makes a connection, as far as that
// is known.
func (t *tap) isConnecting() bool { return t != nil && t.connecting.Load() }

// leave does what the client library is told where something ends: beside the caller,
// where the library would hold that up.
func (t *tap) leave(tell func()) {
	if t.isConnecting() {
		go tell()
	} else {
		tell()
	}
}

// giveUp ends the making of connections: what is under way fails, and so does what
// comes.
func (t *tap) giveUp() {
	t.end()
	if !t.isConnecting() {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.last != nil {
		_ = t.last.Close() // nothing was said on it but greetings
	}
}
