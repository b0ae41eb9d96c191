// Package nats stores events in NATS JetStream. It works with nats-server 2.10 and later, a
// single server or a cluster:
//
//	bus, err := eventbus.Open(ctx, "nats://user:password@nats:4222", eventbus.Options{}, nats.Driver{})
//
// If you need to set up the connection yourself, pass it to [New].
//
// A topic is a stream, and a group is a durable pull consumer of it. Most of what the bus
// needs is JetStream's own: leases are AckWait, a delay is a negative acknowledgement with a
// delay, the attempt number is the number of deliveries, an ephemeral group ends by
// InactiveThreshold, and a pause is a pause of the consumer. The settings of a topic are
// stored in the metadata of its stream.
//
// docs/nats.md explains how streams and consumers are named and how to inspect them, which
// server settings matter, and which promises are weaker on a single server.
package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
)

const (
	answerTimeout  = 5 * time.Second // longest wait for one answer, and for a whole call without a deadline
	defaultPayload = 1 << 20         // assumed maxPayload if the connection has no server yet at New
)

// A Backend keeps topics in one NATS system, over one connection. It has one goroutine, which
// calls nats.go, because the functions of nats.go may block and take no context.
type Backend struct {
	*api
	conn      *natsgo.Conn
	closeConn func() // closes the connection at any moment, even during a write; nil if the caller owns it
	options   Options

	maxPayload int                    // the server's limit for a message with its headers, in bytes
	requesters *pool.Pool[*requester] // for publishing and settling, and for frequent requests
	maintainer *maintainer

	known        sync.Map     // topic → *location of a topic whose stream is known to exist
	created      sync.Map     // "topic/group" → creation time of the stream at the latest Attach
	members      memberList   // open sources
	delayLimiter delayLimiter // spaces the Delay calls of a group
	settledMu    sync.Mutex   // held while the list of settled messages of a consumer is changed

	closed atomic.Bool
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Pinger  = (*Backend)(nil)
	_ backend.Clocker = (*Backend)(nil)
	_ backend.Limited = (*Backend)(nil)
)

// New returns a backend on your own connection, which Close leaves open. You choose how the
// connection recovers from a loss:
//
//   - Let it reconnect for ever (natsgo.MaxReconnects(-1)), because the bus does not reconnect.
//   - Let it buffer nothing while it is down (natsgo.ReconnectBufSize(-1)). Otherwise an event
//     whose Publish has failed may still be sent later.
//   - Let it give up a blocked write within a minute (natsgo.FlusherTimeout,
//     natsgo.ReconnectOnFlusherError), because a blocked write blocks every call.
func New(conn *natsgo.Conn, o Options) (*Backend, error) { return newBackend(conn, nil, o) }

func newBackend(conn *natsgo.Conn, end func(), o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err == nil {
		err = checkVersion(conn)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: new: %w", err)
	}
	sender := newSender(conn)
	b := &Backend{
		api: newAPI(sender, o), conn: conn, closeConn: end, options: o,
		maxPayload: cmp.Or(int(conn.MaxPayload()), defaultPayload),
		requesters: pool.New(poolSize, func() *requester { return newRequester(sender, maxRequests) }, func(r *requester) { r.closeInbox() }),
	}
	b.maintainer = newMaintainer(b)
	return b, nil
}

// oldestVersion is the first server version with which this backend keeps its promises. An
// older server silently ignores settings that it does not know.
var oldestVersion = [2]int{2, 10}

// checkVersion refuses a server that is older than oldestVersion. A connection that has never
// been connected passes, because its version is unknown.
func checkVersion(conn *natsgo.Conn) error {
	for _, f := range versionOf(conn.ConnectedServerVersion()) {
		if f.Severity == backend.SeverityError {
			return &backend.FindingError{Finding: f}
		}
	}
	return nil
}

// String returns only the name of the package: the options of the connection may contain a
// password.
func (*Backend) String() string { return "nats" }

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	once := b.options.OnceWindow
	for topic := range b.options.Topics {
		once = min(once, b.options.of(topic).OnceWindow)
	}
	own := b.options.Stream == "" // a bound is one of the whole stream
	return backend.Limits{
		Payload: b.maxPayload - headerRoom, OnceWindow: once, LooseAcks: true,
		Ephemeral: true,
		Settings:  backend.Supported{Keep: true, MaxMessages: own, MaxBytes: own},
	}
}

// headerRoom is the most bytes that the headers of a message can take up in NATS: the bus's
// own limit for headers, with every byte escaped.
const headerRoom = 52 << 10

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	return b.call(ctx, "ping", "", harmless, func(ctx context.Context) error { return b.ask(ctx, "INFO", nil, nil) })
}

// Now implements [backend.Clocker]. It asks the leader of the topic's stream, because that
// server's clock timestamps the messages. Servers before 2.10 do not report their time.
func (b *Backend) Now(ctx context.Context, topic string) (time.Time, error) {
	return run(ctx, b, "clock", topic, harmless, func(ctx context.Context) (time.Time, error) {
		var info jetstream.StreamInfo
		err := b.ask(ctx, "STREAM.INFO."+b.locate(topic).stream, nil, &info)
		if err == nil && info.TimeStamp.IsZero() {
			err = fmt.Errorf("%w: the server does not tell its time", errors.ErrUnsupported)
		}
		return info.TimeStamp, err
	})
}

// requester takes a requester from the pool. Return it with b.requesters.Put.
func (b *Backend) requester(ctx context.Context) (*requester, error) {
	if err := ctx.Err(); err != nil {
		return nil, classOf(ctx, err, false)
	}
	r, err := b.requesters.Get(ctx)
	return r, classOf(ctx, err, false)
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	ctx, cancel := closeContext()
	defer cancel()
	for _, s := range b.members.close() {
		s.close(ctx)
	}
	b.requesters.Close(nil)
	if b.closeConn != nil {
		b.closeConn()
	}
	b.sender.close()
	if b.closeConn != nil {
		b.conn.Close()
		b.sender.connectionLost() // no more answers will arrive
	}
	return nil
}

var _ backend.Identified = (*Backend)(nil)

// Identity implements [backend.Identified].
func (b *Backend) Identity() backend.Identity {
	o := b.conn.Opts
	i := backend.Identity{System: "nats", Client: o.Name}
	server := o.Url
	if len(o.Servers) > 0 {
		server = o.Servers[0]
	}
	server, _, _ = strings.Cut(server, ",")
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return i
	}
	i.Address, i.Port = u.Hostname(), 4222
	if port, err := strconv.Atoi(u.Port()); err == nil {
		i.Port = port
	}
	return i
}

// A memberList holds the open sources of a backend.
type memberList struct {
	mu     sync.Mutex
	all    map[*source]struct{}
	closed bool
}

// add adds a source. After close it adds none and returns false.
func (l *memberList) add(s *source) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.all == nil {
		l.all = map[*source]struct{}{}
	}
	l.all[s] = struct{}{}
	return true
}

func (l *memberList) remove(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
}

// of returns the members of a group.
func (l *memberList) of(topic, group string) (all []*source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		if s.config.Topic == topic && s.config.Group == group {
			all = append(all, s)
		}
	}
	return all
}

// close returns all members and refuses new ones from then on.
func (l *memberList) close() (all []*source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.all {
		all = append(all, s)
	}
	return all
}
