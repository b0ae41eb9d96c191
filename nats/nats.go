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
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
)

// Options are what a backend may be told. The zero value is a good choice.
type Options struct {
	// Namespace begins every subject and stream: subject "<namespace>.<topic>".
	// It is one token; the default is "bus".
	Namespace string

	// Stream, if set, is the name of one stream that all topics share, with its
	// limits. Otherwise each topic has one of its own. A name of a topic and one
	// of a group then have at most 254 bytes together.
	Stream string

	// Domain is that of JetStream, for servers that reach it over a leaf node.
	Domain string

	// OnceWindow is how long Once remembers an ID: the duplicate window of new
	// streams; 2 minutes if zero. A stream that has a shorter one is refused.
	OnceWindow time.Duration

	// MaxBytes bounds each new stream; more is refused with [backend.ErrFull]
	// until what every group has settled is purged. 256 MiB if zero: JetStream
	// sets that much of its storage aside for each, dead letters included; a
	// stream without a bound would fill its disk.
	MaxBytes int64

	// MaxMessages bounds each new stream likewise, by the number of messages; no
	// bound if zero.
	MaxMessages int64

	// Replicas and Storage are those of new streams; 1 and files if zero.
	Replicas int
	Storage  jetstream.StorageType

	// Topics replaces these for single topics; what is zero there is taken from
	// above. It has no meaning with Stream, and is refused.
	Topics map[string]TopicOptions
}

// TopicOptions are those of one topic.
type TopicOptions struct {
	OnceWindow  time.Duration
	MaxBytes    int64
	MaxMessages int64
	Replicas    int
	Storage     jetstream.StorageType
}

const (
	lineCount  = 16              // calls with messages that run at the same time, and others
	answer     = 5 * time.Second // how long a call waits, if its context does not end before
	defaultMax = 256 << 20
)

// A Backend is a bus on one NATS system.
type Backend struct {
	options Options
	conn    *natsgo.Conn
	owned   bool
	tap     *tap              // nil if the connection is lent
	api     string            // what subjects of the JetStream API begin with
	lines   *pool.Pool[*line] // for messages and what settles them
	asking  *pool.Pool[*line] // for the API

	closed  atomic.Bool
	known   sync.Map // of topics, whose streams are known to be there, to their *place
	created sync.Map // by topic and group: when the stream was created that this backend attached to last
	mu      sync.Mutex
	sources map[*source]struct{}
}

// New returns a backend on a connection, which is lent: it stays open. What the
// connection does when it is lost is up to who made it: unless it comes back by
// itself for ever (natsgo.MaxReconnects(-1)), the bus does not. It should keep
// nothing to send later (natsgo.ReconnectBufSize(-1)), and give up a write that is
// stuck, which holds up every call, sooner than after a minute
// (natsgo.FlusherTimeout, natsgo.ReconnectOnFlusherError).
func New(conn *natsgo.Conn, o Options) (*Backend, error) { return newBackend(conn, nil, o) }

func newBackend(conn *natsgo.Conn, t *tap, o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err == nil {
		err = checkVersion(conn)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: new: %w", err)
	}
	api := jetstream.DefaultAPIPrefix
	if o.Domain != "" {
		api = "$JS." + o.Domain + ".API."
	}
	return &Backend{
		options: o, conn: conn, api: api, tap: t, lines: newLines(conn, t), asking: newLines(conn, t.aside()),
		sources: map[*source]struct{}{},
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
	for _, check := range []error{
		token("namespace", o.Namespace, false), token("stream", o.Stream, true), token("domain", o.Domain, true),
	} {
		if check != nil {
			return o, check
		}
	}
	if o.Stream != "" && len(o.Topics) > 0 {
		return o, errors.New("topics have no options of their own in one stream")
	}
	for _, topic := range append(slices.Sorted(maps.Keys(o.Topics)), "") {
		if err := o.of(topic).check(); err != nil {
			if topic != "" {
				err = fmt.Errorf("topic %s: %w", topic, err)
			}
			return o, err
		}
	}
	return o, nil
}

// token checks that a name is a single one.
func token(what, name string, optional bool) error {
	if name == "" && optional {
		return nil
	}
	if err := backend.CheckName(name); err != nil {
		return fmt.Errorf("%s %w", what, err)
	}
	if dotless(name) != name {
		return fmt.Errorf("%s %q has a dot", what, name)
	}
	return nil
}

func (t TopicOptions) check() error {
	switch {
	case t.OnceWindow < 100*time.Millisecond:
		return fmt.Errorf("once window of %v is less than 100 ms", t.OnceWindow)
	case t.MaxBytes < 0:
		return errors.New("max bytes is negative")
	case t.MaxMessages < 0:
		return errors.New("max messages is negative")
	case t.Replicas < 0:
		return errors.New("replicas is negative")
	}
	return nil
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
	if t.MaxMessages == 0 {
		t.MaxMessages = o.MaxMessages
	}
	if t.Replicas == 0 {
		t.Replicas = o.Replicas
	}
	if t.Storage == 0 {
		t.Storage = o.Storage
	}
	return t
}

// String names the backend, and nothing of what it was made with: that may be a
// client that holds a password.
func (*Backend) String() string { return "nats" }

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Payload: int(b.conn.MaxPayload()) - headerRoom, OnceWindow: b.options.OnceWindow, LooseAcks: true}
}

// headerRoom is what headers of the allowed size may take when all of them have
// to be escaped.
const headerRoom = 52 << 10

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	return b.look(ctx, "ping", "", func(ctx context.Context) error { return b.ask(ctx, "INFO", nil, nil) })
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
	if b.owned {
		b.tap.giveUp()
	}
	for _, s := range members {
		s.close()
	}
	_, _ = b.lines.Close(nil), b.asking.Close(nil) // leaving an inbox does not fail
	if b.owned {
		b.conn.Close()
	}
	return nil
}
