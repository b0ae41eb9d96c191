// Package nats is the backend on NATS JetStream, for nats-server 2.10 and later,
// alone or clustered.
//
// A topic is a stream, a group is a durable pull consumer of it. What a lease, a
// delay and an attempt are, is kept by the server: AckWait, a negative
// acknowledgement with a delay, the number of deliveries. docs/nats.md describes
// the names and how to look at them, what the server needs, and what a single
// server cannot promise.
package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Options are what a backend may be told. The zero value is a good choice.
type Options struct {
	// Namespace begins every subject and stream: subject "<namespace>.<topic>".
	// It is one token; the default is "bus".
	Namespace string

	// OnceWindow is how long Once remembers an ID: the duplicate window of new
	// streams; 2 minutes if zero.
	OnceWindow time.Duration

	// MaxBytes bounds each new stream; more is refused with [backend.ErrFull]
	// until what every group has settled is purged. 1 GiB if zero: JetStream
	// reserves nothing for a stream without a bound, and then fills its disk.
	MaxBytes int64

	// Replicas and Storage are those of new streams; 1 and files if zero.
	Replicas int
	Storage  jetstream.StorageType

	// Topics replaces these for single topics; what is zero there is taken from
	// above.
	Topics map[string]TopicOptions
}

// TopicOptions are those of one topic.
type TopicOptions struct {
	OnceWindow time.Duration
	MaxBytes   int64
	Replicas   int
	Storage    jetstream.StorageType
}

const (
	lineCount  = 8                      // calls that run at the same time, besides reads
	block      = 500 * time.Millisecond // how long a pull waits for something new
	patience   = 2 * time.Second        // how much longer a read waits for its end
	answer     = 5 * time.Second        // how long a call waits, if its context does not end before
	defaultMax = 1 << 30
)

// A Backend is a bus on one NATS system.
type Backend struct {
	options Options
	conn    *natsgo.Conn
	owned   bool
	js      jetstream.JetStream
	lines   *lines

	closed  atomic.Bool
	mu      sync.Mutex
	known   map[string]bool // topics whose streams are known to be there
	sources map[*source]struct{}
}

// New returns a backend on a connection, which is lent: it stays open.
func New(conn *natsgo.Conn, o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("nats: new: %w", err)
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(answer))
	if err != nil {
		return nil, fmt.Errorf("nats: new: %w", err)
	}
	return &Backend{
		options: o, conn: conn, js: js, lines: newLines(conn, lineCount),
		known: map[string]bool{}, sources: map[*source]struct{}{},
	}, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = "bus"
	}
	if o.OnceWindow == 0 {
		o.OnceWindow = 2 * time.Minute
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMax
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	switch err := backend.CheckName(o.Namespace); {
	case err != nil:
		return o, fmt.Errorf("namespace %w", err)
	case dotless(o.Namespace) != o.Namespace:
		return o, fmt.Errorf("namespace %q has a dot", o.Namespace)
	case o.OnceWindow < 100*time.Millisecond:
		return o, fmt.Errorf("once window of %v is less than 100 ms", o.OnceWindow)
	case o.MaxBytes < 0:
		return o, errors.New("max bytes is negative")
	}
	return o, nil
}

// of returns the options of one topic.
func (o Options) of(topic string) TopicOptions {
	t := o.Topics[topic]
	if t.OnceWindow == 0 {
		t.OnceWindow = o.OnceWindow
	}
	if t.MaxBytes == 0 {
		t.MaxBytes = o.MaxBytes
	}
	if t.Replicas == 0 {
		t.Replicas = o.Replicas
	}
	if t.Storage == 0 {
		t.Storage = o.Storage
	}
	return t
}

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Payload: b.maxPayload(), OnceWindow: b.options.OnceWindow, LooseAcks: true}
}

// headerRoom is what headers of the allowed size may take when all of them have
// to be escaped.
const headerRoom = 52 << 10

func (b *Backend) maxPayload() int { return int(b.conn.MaxPayload()) - headerRoom }

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	if b.closed.Load() {
		return b.failure("ping", "", backend.ErrClosed)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := b.js.AccountInfo(ctx)
	return b.failure("ping", "", classOf(ctx, err, false))
}

// bounded gives a context a deadline, which NATS wants.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answer)
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed.Swap(true) {
		b.mu.Unlock()
		return nil
	}
	var members []*source
	for s := range b.sources {
		members = append(members, s)
	}
	b.mu.Unlock()
	for _, s := range members {
		s.close()
	}
	b.lines.close()
	if b.owned {
		b.conn.Close()
	}
	return nil
}

func (b *Backend) failure(op, topic string, err error) error {
	if err == nil {
		return nil
	}
	if b.closed.Load() {
		err = backend.ErrClosed
	}
	if topic != "" {
		op += " " + topic
	}
	return fmt.Errorf("nats: %s: %w", op, err)
}
