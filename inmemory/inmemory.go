// Package inmemory is a backend in the memory of the process. It is also the reference of
// the contract in package backend: authors of other backends can read here how each verb
// behaves.
//
// A topic has a lock, a log of messages, and groups. A group has a heap, and a cursor into
// the log. Messages from the cursor on were never delivered, and are due. The heap has the
// times at which delivered, unsettled messages are due again. Of all due messages, the one
// with the lowest position is delivered first.
//
// The log forgets a message after every group has settled it and all earlier messages. So
// the log keeps all messages that were stored after a message with a long delay. The log of
// a topic without groups keeps all messages, up to the limits in [Options].
package inmemory

import (
	"context"
	"math"

	"github.com/seed41896749/eventbus/backend"
)

// A Backend keeps topics in memory. Publish refuses a message with [backend.ErrFull] if it
// would exceed a limit of [Options], or with [backend.ErrTooLarge] if the message alone is
// larger than MaxBytes. A call of Publish may store some messages and refuse others. The
// backend never drops a stored message.
type Backend struct {
	options   Options
	ledger    ledger
	directory directory
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Limited = (*Backend)(nil)
)

// New returns an empty backend.
func New(o Options) *Backend {
	o = o.withDefaults()
	return &Backend{
		options:   o,
		ledger:    ledger{maxMessages: o.MaxMessages, maxBytes: o.MaxBytes},
		directory: directory{topics: map[string]*topic{}, unused: 1, closed: make(chan struct{})},
	}
}

// Close implements [backend.Backend]. All stored messages are lost.
func (b *Backend) Close() error {
	b.directory.close()
	return nil
}

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Payload:    int(min(b.options.MaxBytes, math.MaxInt)),
		OnceWindow: b.options.OnceWindow,
		Refund:     true,
		FencedAcks: true,
		Publishers: -1,
	}
}

// WaitSettled waits until no group of any topic has an unsettled message. Messages in the
// backlog, held messages and delayed messages are unsettled. WaitSettled fails if ctx is
// done or the Backend is closed. It is meant for tests.
func (b *Backend) WaitSettled(ctx context.Context) error {
	var err error
	select {
	case <-b.ledger.whenSettled():
	case <-b.directory.closed:
		err = backend.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return failed("wait until settled", err)
}
