// Package redisstream runs the event bus on Redis Streams. It works with Redis 6.2 and later:
// a single server, Sentinel or Cluster, with TLS and ACLs.
//
// Open a bus by URL, with a [Driver]:
//
//	bus, err := eventbus.Open(ctx, "redis://user:password@redis:6379", eventbus.Options{}, redisstream.Driver{})
//
// or pass a go-redis client of your own to [New].
//
// A topic is a stream, a group is a consumer group, and a member is one of its consumers. A
// delivered message stays pending in its group, and is never trimmed, until the group has
// acknowledged it. Leases and delays go by the server's clock. Attempts are kept in the
// server's delivery count. Topic settings and pauses are keys beside the stream, and therefore
// apply to every process. docs/redis.md describes these keys and how to inspect them, the
// server settings that the bus needs, and the Redis features that each promise rests on.
//
// go-redis has one logger for the whole process, which writes to standard error by default. A
// backend's own connections never write to it, but the client that you pass to New may, for
// example about Sentinel. You can replace the logger with [redis.SetLogger].
package redisstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
)

// Options are the settings of a [Backend]. A zero field means its default.
type Options struct {
	// Namespace is the prefix of every key: "<namespace>:{<topic>}…". The default is "bus".
	// Buses that use the same server and the same namespace share their topics.
	Namespace string

	// OnceWindow is how long an ID of [backend.Message].Once is remembered, by the server's
	// clock. The default is 2 minutes. Each ID takes about 150 bytes for that time.
	OnceWindow time.Duration

	// MaxMessages limits the stored messages of every topic that has not declared a limit of
	// its own. At the limit, Publish makes room by removing messages that every group has
	// settled; if there are none, it returns [backend.ErrFull]. Zero means that only the
	// server's memory is the limit.
	MaxMessages int

	// AllowEviction accepts a server that may evict any key when its memory is full
	// (maxmemory-policy allkeys-*). Such a server can delete whole topics with their groups
	// without reporting an error. The policies volatile-* are accepted anyway, because they
	// evict only keys with a time to live, such as the marks of Once.
	AllowEviction bool

	// Topics holds the settings of single topics, by name.
	Topics map[string]TopicOptions
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = "bus"
	}
	if o.OnceWindow == 0 {
		o.OnceWindow = 2 * time.Minute
	}
	switch {
	case backend.CheckName(o.Namespace) != nil:
		return o, fmt.Errorf("namespace %w", backend.CheckName(o.Namespace))
	case o.OnceWindow < time.Millisecond:
		return o, fmt.Errorf("once window of %v is less than a millisecond", o.OnceWindow)
	case o.MaxMessages < 0:
		return o, errors.New("max messages is negative")
	}
	for _, topic := range slices.Sorted(maps.Keys(o.Topics)) {
		if err := checkTopic(topic, o.Topics[topic]); err != nil {
			return o, fmt.Errorf("topic %q: %w", topic, err)
		}
	}
	return o, nil
}

// TopicOptions are the settings of one topic.
type TopicOptions struct {
	// Flat decodes entries that other programs added as messages. Without it such entries are
	// unreadable and go to the dead-letter topic. The payload holds the fields of the entry in
	// their order, encoded like a URL query, and its content type is
	// application/x-www-form-urlencoded, which codec.Fields reads. The message's ID is the
	// entry's ID unless FlatID names a field. Its time is the server time in the entry's ID, if
	// the server made that ID.
	Flat bool

	// FlatID names the field whose value is the message's ID. It needs Flat. If an entry has
	// no such field, or a value that Publish would refuse as an ID, the message's ID is the
	// entry's ID.
	FlatID string

	// FlatKey names the field whose value is the message's key. It needs Flat. If an entry has
	// several fields of this name, the first one counts. By default the messages have no key,
	// and therefore no order.
	FlatKey string

	// FlatType names the field whose value is the event's type. It needs Flat. A value that
	// Publish would refuse as a type is ignored. By default the events have no type.
	FlatType string

	// FlatPublish makes Publish store payloads that have the form of a flat entry as fields,
	// which redis-cli and programs in other languages can read. It needs Flat. One more field,
	// ":event", holds the ID, the key and the headers, so nothing is lost. A message with
	// another content type, an empty payload, or more than 100 fields is stored in the usual
	// form. A program of version 0.1 takes such an entry for one of another program.
	FlatPublish bool
}

func checkTopic(topic string, o TopicOptions) error {
	if err := backend.CheckName(topic); err != nil {
		return fmt.Errorf("the topic %w", err)
	}
	if (o.FlatID != "" || o.FlatKey != "" || o.FlatType != "" || o.FlatPublish) && !o.Flat {
		return errors.New("flat_id, flat_key, flat_type or flat_publish is given without flat")
	}
	return nil
}

const (
	maxSessions  = 8                      // concurrent calls, not counting the reads of members
	replyTimeout = 5 * time.Second        // how long a call waits for its reply; its context may end earlier
	blockTime    = 500 * time.Millisecond // how long a read waits for new messages
	replyGrace   = 2 * time.Second        // how long a read waits for its reply once blockTime has passed
	maxReaders   = 32                     // topics of one subscription that may wait for messages at the same time
	maxPayload   = 16 << 20               // bytes of a message; while the server reads one, all other clients wait
)

// A Backend keeps topics in one Redis: a server, a Cluster, or a master with Sentinels. It is
// safe for concurrent use.
type Backend struct {
	broker
	namespace
	options  Options
	owned    bool          // Close closes the client
	opened   string        // the first address of the URL that Open was given; empty after New
	youngFor time.Duration // defaultYoungFor; tests change it
	id       string        // identifies this backend when processes take turns in Maintain

	readers  readerPool
	warnings warnings
	bounds   boundCache
	members  members
	closed   atomic.Bool

	ephemerals ephemeralGroups

	mu sync.Mutex
	// repairFrom holds, by delayedKey, the ID after which the next Maintain continues to repair
	// delayed messages.
	repairFrom map[string]string
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Limited = (*Backend)(nil)
)

// New returns a backend that uses Redis through client, a [*redis.Client] or a
// [*redis.ClusterClient]. Such a client must read from masters, so ReadOnly, RouteByLatency and
// RouteRandomly are refused. For Sentinel, pass a client of [redis.NewFailoverClient].
//
// Keep the client open until the backend is closed; Close does not close it. Hooks that you add
// to the client before New see every command of the backend. go-redis cannot remove hooks, so
// the client keeps every backend that was made with it in memory, even a closed one. Don't make
// many backends with one client.
//
// The backend opens its own connections, with the routing, addresses, database, credentials, TLS
// settings and dialer of the client. It has at most 8 connections to each server. In addition,
// each member of a group has one connection to the server of its stream while it waits for
// messages.
func New(client redis.UniversalClient, o Options) (*Backend, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("redisstream: new: %w", err)
	}
	b := &Backend{
		namespace: namespace(o.Namespace), options: o, youngFor: defaultYoungFor, id: rand.Text(), repairFrom: map[string]string{},
	}
	b.client, b.bounds.all = client, o.MaxMessages > 0
	b.ephemerals.backend = b
	b.sessions = pool.New(maxSessions, func() *session { return newSession(&b.broker, replyTimeout) }, (*session).end)
	switch client := client.(type) {
	case *redis.Client:
		b.sentinel = client.Options().Addr == sentinelAddr
		b.addHook(client)
	case *redis.ClusterClient:
		if err := readsMasters(client.Options()); err != nil {
			return nil, fmt.Errorf("redisstream: new: %w", err)
		}
		b.cluster = client
		client.OnNewNode(func(node *redis.Client) { b.addHook(node) })
	default:
		return nil, fmt.Errorf("redisstream: new: a %T cannot be used: it must be a *redis.Client or a *redis.ClusterClient", client)
	}
	return b, nil
}

// readsMasters returns an error if the client reads from replicas. Such a client would return
// outdated messages, and would ask each server for its list of commands.
func readsMasters(o *redis.ClusterOptions) error {
	for _, option := range []struct {
		name string
		set  bool
	}{{"RouteByLatency", o.RouteByLatency}, {"RouteRandomly", o.RouteRandomly}, {"ReadOnly", o.ReadOnly}} {
		if option.set {
			return fmt.Errorf("the client has ClusterOptions.%s, and would read from replicas: pass a client without it", option.name)
		}
	}
	return nil
}

// Limits implements [backend.Limited].
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Payload: maxPayload, OnceWindow: b.options.OnceWindow, Refund: true, FencedAcks: true, Instances: true, Positions: true,
		Receivers: maxReaders, Settings: backend.Supported{Keep: true, MaxMessages: true}, Ephemeral: true,
	}
}

// Close implements [backend.Backend].
func (b *Backend) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	for _, s := range b.members.list() { // a member that attaches later finds the backend closed
		s.close()
	}
	b.sessions.Close((*session).end)
	if !b.owned {
		return nil
	}
	return failure(false, "close", "", b.client.Close())
}

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	return b.failure("ping", "", b.command(ctx, "ping").err)
}

// Now implements [backend.Clocker]. It asks the server that holds the topic's stream, or would
// hold it.
func (b *Backend) Now(ctx context.Context, topic string) (time.Time, error) {
	c := b.run(ctx, clockScript, []string{b.streamKey(topic)})
	c.arrayOf(2)
	seconds, micros := c.bulk(), c.bulk()
	err := c.end()
	if err != nil {
		return time.Time{}, b.failure("clock", topic, err)
	}
	s, err := strconv.ParseInt(string(seconds), 10, 64)
	us, err2 := strconv.ParseInt(string(micros), 10, 64)
	if err := cmp.Or(err, err2); err != nil {
		return time.Time{}, b.failure("clock", topic, fmt.Errorf("%w: %w", errMalformed, err))
	}
	return time.Unix(s, us*int64(time.Microsecond)), nil
}

var _ backend.Identified = (*Backend)(nil)

// Identity implements [backend.Identified]. With a Sentinel client passed to [New], Address is
// empty, because go-redis does not reveal the addresses of such a client.
func (b *Backend) Identity() backend.Identity {
	i := backend.Identity{System: "redis"}
	addr := b.opened
	switch client := b.client.(type) {
	case *redis.Client:
		i.Client = client.Options().ClientName
		if !b.sentinel {
			addr = cmp.Or(addr, client.Options().Addr)
		}
	case *redis.ClusterClient:
		i.Client = client.Options().ClientName
		if addrs := client.Options().Addrs; addr == "" && len(addrs) > 0 {
			addr = addrs[0]
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		i.Address = addr // the path of a socket
		return i
	}
	i.Address = host
	i.Port, _ = strconv.Atoi(port)
	return i
}
