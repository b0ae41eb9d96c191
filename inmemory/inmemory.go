// Package inmemory is a backend that lives and dies with the process. It is also
// the contract of package backend as a program: an author of another backend can
// read here what each verb means.
//
// A topic is one lock, a log of messages, and groups. A group is a cursor into the
// log and a heap. What the group was never handed, from the cursor on, has been due
// since it was stored. The heap has the moments at which its other messages, handed
// out and not settled, are due again. Of all that is due the lowest positions go first.
//
// The log forgets a message once every group has settled it and all before it. So
// a message with a long delay keeps those stored after it. A topic without groups
// keeps everything, up to the bounds in [Options].
package inmemory

import (
	"context"
	"math"

	"github.com/seed41896749/eventbus/backend"
)

// A Backend keeps topics in memory. At a bound of its [Options] Publish refuses
// with [backend.ErrFull], one message at a time, and nothing is dropped.
type Backend struct {
	options   Options
	ledger    ledger
	directory directory
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
	_ backend.Limited    = (*Backend)(nil)
	_ backend.Pinger     = (*Backend)(nil)
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

// Close implements [backend.Backend]. What is stored is lost.
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

// WaitSettled waits until there is a moment at which no group of any topic has an
// unsettled message: none never handed out, held or delayed. It is meant for tests.
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
