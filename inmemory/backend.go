// Package inmemory is a backend that lives and dies with the process. It is
// also the contract of package backend as a program: whoever wants to know what
// a verb means can read it here.
//
// A topic is a log that its groups share. A group is a cursor into the log
// (what it was never handed is due since it was stored) and a queue of what it
// was handed and has not settled. Of all that is due the lowest positions go first.
// Publishing costs the same for any number of groups.
//
// What every group of a topic has settled is forgotten at once, from the oldest
// on: a message that waits for a long delay keeps those stored after it. A topic
// without groups keeps everything, up to the bounds in [Options].
package inmemory

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Options bound a [Backend]. The zero value of a field, or less, means the
// default it names.
type Options struct {
	MaxMessages int           // kept in all topics together; 1,048,576
	MaxBytes    int64         // of their Message.Size; 1 GiB
	OnceWindow  time.Duration // how long Once remembers an ID; 2 minutes
}

func (o Options) withDefaults() Options {
	if o.MaxMessages <= 0 {
		o.MaxMessages = 1 << 20
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.OnceWindow <= 0 {
		o.OnceWindow = 2 * time.Minute
	}
	return o
}

// A Backend keeps topics in memory. At a bound of its [Options] Publish refuses
// with [backend.ErrFull], one message at a time, and nothing is dropped.
type Backend struct {
	options   Options
	clock     clock
	ledger    ledger
	directory directory
	pages     spare[page]
	entries   spare[chunk]
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
		clock:     clock{time.Now()},
		ledger:    ledger{maxMessages: int64(o.MaxMessages), maxBytes: o.MaxBytes},
		directory: directory{done: make(chan struct{})},
	}
}

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("inmemory: publish: %w: %w", backend.ErrUnavailable, err)
	}
	var errs itemErrors
	for i := 0; i < len(msgs); {
		end := i + 1
		for end < len(msgs) && msgs[end].Topic == msgs[i].Topic {
			end++
		}
		b.publish(msgs[i:end], func(j int, err error) {
			errs.set(i+j, len(msgs), fmt.Errorf("inmemory: publish %s: %w", msgs[i].Topic, err))
		})
		i = end
	}
	return backend.AsBatchError(errs)
}

// publish stores messages of one topic.
func (b *Backend) publish(msgs []*backend.Message, fail func(i int, err error)) {
	now := b.clock.now()
	t, err := b.directory.ensure(msgs[0].Topic, (*topic).lockLog, b.newTopic)
	if err != nil {
		for i := range msgs {
			fail(i, err)
		}
		return
	}
	t.publish(msgs, now, fail)
}

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.attach(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("inmemory: attach %s/%s: %w", c.Topic, c.Group, err)
	}
	return s, nil
}

func (b *Backend) attach(ctx context.Context, c backend.Config) (*source, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	t, err := b.directory.ensure(c.Topic, (*topic).lock, b.newTopic)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	g := t.group(c.Group)
	if g == nil {
		if g, err = t.addGroup(c.Group, c.Start); err != nil {
			return nil, err
		}
	}
	return g.join(c.Lease, c.ConfirmAcks), nil
}

// Close implements [backend.Backend]. What is stored is lost.
func (b *Backend) Close() error {
	b.directory.close()
	return nil
}

// WaitSettled waits until there is a moment at which nothing is unsettled in
// any group of any topic: nothing that was never handed out, is held or is
// delayed. It is meant for tests.
func (b *Backend) WaitSettled(ctx context.Context) error {
	select {
	case <-b.ledger.whenSettled():
		return nil
	case <-b.directory.done:
		return fmt.Errorf("inmemory: wait until settled: %w", backend.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("inmemory: wait until settled: %w", ctx.Err())
	}
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

// Ping implements [backend.Pinger].
func (b *Backend) Ping(context.Context) error {
	if err := b.directory.open(nil); err != nil {
		return fmt.Errorf("inmemory: ping: %w", err)
	}
	return nil
}

// itemErrors are the errors of a batch, allocated with the first.
type itemErrors []error

func (e *itemErrors) set(i, size int, err error) {
	if *e == nil {
		*e = make([]error, size)
	}
	(*e)[i] = err
}
