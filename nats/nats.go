// Package nats is the backend on NATS JetStream, for nats-server 2.10 and later,
// alone or clustered.
//
// A topic is a stream; a group is a durable pull consumer of it. The server keeps leases
// (AckWait), delays (a negative acknowledgement with a delay) and attempts (the number of
// deliveries). docs/nats.md describes the names and how to inspect them, the server's
// settings, and the weaker promises of a single server.
package nats

import (
	"cmp"
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

// Options are the settings of a backend. The zero value is a good choice.
type Options struct {
	// Namespace begins every subject and stream: subject "<namespace>.<topic>".
	// It is one token; the default is "bus".
	Namespace string

	// Stream, if set, names one stream that all topics share, with its limits. Otherwise
	// each topic has a stream of its own. In a shared stream the names of a topic and a
	// group have at most 254 bytes together.
	Stream string

	// Domain is the JetStream domain, for servers that reach JetStream over a leaf node.
	Domain string

	// OnceWindow is how long Once remembers an ID: the duplicate window of new streams. 2
	// minutes if zero. A stream with a shorter window is refused.
	OnceWindow time.Duration

	// MaxBytes bounds each new stream. 256 MiB if zero. A full stream refuses messages
	// with [backend.ErrFull] until the messages settled by every group are purged.
	// JetStream reserves this much storage for each stream, dead-letter topics included;
	// an unbounded stream would fill the disk.
	MaxBytes int64

	// MaxMessages bounds each new stream by its number of messages. No bound if zero.
	MaxMessages int64

	// Replicas and Storage apply to new streams. One replica in files if zero.
	Replicas int
	Storage  jetstream.StorageType

	// Topics overrides these options for single topics. A zero field takes the value
	// above. It cannot be combined with Stream.
	Topics map[string]TopicOptions
}

// TopicOptions are the settings of one topic.
type TopicOptions struct {
	OnceWindow  time.Duration
	MaxBytes    int64
	MaxMessages int64
	Replicas    int
	Storage     jetstream.StorageType
}

const (
	answer         = 5 * time.Second // timeout of a call without a deadline
	defaultMax     = 256 << 20
	defaultPayload = 1 << 20 // assumed limit of the server, until it is connected
)

// A Backend is a connection to one NATS system. It has one goroutine, the sender's.
type Backend struct {
	options Options
	conn    *natsgo.Conn
	end     func() // closes the connection at once, even while it blocks; nil if the caller owns the connection
	api     string // prefix of the JetStream API's subjects

	maxPayload int // the server's limit, in bytes
	sender     *sender
	requesters *pool.Pool[*requester] // for publishing and settling
	asking     *pool.Pool[*requester] // for the API

	closed  atomic.Bool
	known   sync.Map // topic → *place, of topics whose stream is known to exist
	created sync.Map // "topic/group" → creation time of the stream at the latest Attach
	mu      sync.Mutex
	sources map[*source]struct{}
	paces   map[string]*pace    // by topic and group
	fills   map[string]fullness // by topic and group: fullness at the last look
}

// New returns a backend on the caller's connection. Close leaves the connection open. The
// caller chooses how the connection recovers from a loss:
//
//   - It should reconnect for ever (natsgo.MaxReconnects(-1)), because the bus does not reconnect.
//   - It should buffer nothing while it is down (natsgo.ReconnectBufSize(-1)).
//   - It should give up a blocked write within a minute (natsgo.FlusherTimeout, natsgo.ReconnectOnFlusherError), because a blocked write blocks every call.
func New(conn *natsgo.Conn, o Options) (*Backend, error) { return newBackend(conn, nil, o) }

func newBackend(conn *natsgo.Conn, end func(), o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err == nil {
		err = checkVersion(conn)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: new: %w", err)
	}
	b := &Backend{
		options: o, conn: conn, end: end, api: jetstream.DefaultAPIPrefix, maxPayload: cmp.Or(int(conn.MaxPayload()), defaultPayload),
		sender: newSender(conn), sources: map[*source]struct{}{}, paces: map[string]*pace{}, fills: map[string]fullness{},
	}
	if o.Domain != "" {
		b.api = "$JS." + o.Domain + ".API."
	}
	b.requesters, b.asking = newRequesters(b.sender), newRequesters(b.sender)
	return b, nil
}

// oldest is the first server version that keeps the promises. Older servers silently
// ignore settings that they do not know.
var oldest = [2]int{2, 10}

// checkVersion refuses a server that is too old. Before the first connection the version
// is unknown and not checked.
func checkVersion(conn *natsgo.Conn) error {
	var v [2]int
	if n, _ := fmt.Sscanf(conn.ConnectedServerVersion(), "%d.%d", &v[0], &v[1]); n == 2 && slices.Compare(v[:], oldest[:]) < 0 {
		return fmt.Errorf("%w: the server is of version %s; it must be %d.%d or later", backend.ErrRefused, conn.ConnectedServerVersion(), oldest[0], oldest[1])
	}
	return nil
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

// token checks that a name is valid and has no dot.
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

// of returns the options of one topic, defaults filled in.
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

// String names the backend only, because its options may hold a password.
func (*Backend) String() string { return "nats" }

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Payload: b.maxPayload - headerRoom, OnceWindow: b.options.OnceWindow, LooseAcks: true}
}

// headerRoom is the most bytes of headers within the bus's limit, if every byte has to be
// escaped.
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
	for _, s := range members {
		s.close()
	}
	_, _ = b.requesters.Close(nil), b.asking.Close(nil) // leaving an inbox does not fail
	if b.end != nil {
		b.end()
	}
	b.sender.close()
	if b.end != nil {
		b.conn.Close()
	}
	return nil
}
