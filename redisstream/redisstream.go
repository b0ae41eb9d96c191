// Package redisstream is the backend on Redis Streams, for Redis 6.2 and later:
// a single server, Sentinel or Cluster, with TLS and ACL.
//
// A topic is a stream, a group is a consumer group, and a member is one of its consumers.
// A delivered message stays pending in its group, and is not trimmed, until the group
// acknowledges it. Leases and delays are measured by the clock of the server. Attempts are
// part of the server's delivery count. The settings of a topic and the pause of a group are
// keys beside the stream, so they hold for all processes. docs/redis.md describes the keys, how to look at
// them, the settings that the server needs, and the features on which each promise rests.
//
// go-redis has a logger for the whole process, standard error by default. The connections of
// a backend write nothing to it. The lent client itself may, for example about Sentinel. A
// program can replace this logger by [redis.SetLogger].
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
	// Namespace is the beginning of every key: "<namespace>:{<topic>}…". The default is
	// "bus". Buses with the same server and the same namespace share topics.
	Namespace string

	// OnceWindow is how long [backend.Message].Once remembers an ID, by the clock of the
	// server. The default is 2 minutes. Each ID takes about 150 bytes for that time.
	OnceWindow time.Duration

	// MaxMessages limits the stored messages of each topic for which no other bound was declared.
	// At the limit Publish makes room by messages that every group has settled. Without
	// such messages it returns [backend.ErrFull]. Zero means no limit except the memory of the
	// server.
	MaxMessages int

	// AllowEviction accepts a server that may evict any key when its memory is full
	// (maxmemory-policy allkeys-*). Such a server can delete whole topics with their groups,
	// without an error. The policies volatile-* need no permission, because they evict only
	// keys with a time to live, such as the marks of Once.
	AllowEviction bool

	// Topics has the settings of single topics, by name.
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
	// Flat decodes the entries of other programs as messages. Without Flat such entries are
	// unreadable and go to the dead-letter topic. The payload has the fields of the entry
	// in their order, encoded like the query of a URL. Its content type is
	// application/x-www-form-urlencoded, which codec.Fields reads. The ID of the message is
	// the ID of the entry, unless FlatID names a field. Its time is the server's time in this ID, if the server made it.
	Flat bool

	// FlatID, which needs Flat, is the name of the field whose value is the ID of the
	// message. If an entry has no such field, or Publish would refuse its value as an ID,
	// the ID of the message is the ID of the entry.
	FlatID string

	// FlatKey, which needs Flat, is the name of the field whose value is the key of the
	// message. If an entry has several fields of this name, the first one counts. By
	// default the messages have no key, and so no order.
	FlatKey string

	// FlatType, which needs Flat, is the name of the field whose value is the type of the
	// event. A value that Publish refuses as a type is ignored. By default the events have
	// no type.
	FlatType string

	// FlatPublish makes Publish store a message whose payload has the form of a flat entry's as
	// fields, which redis-cli and programs in other languages read. It needs Flat. A further
	// field, ":event", has the ID, the key and the headers, so that nothing is lost. A message
	// of another content type, with an empty payload, or with more than 100 fields is stored in
	// the usual form. A program of version 0.1 reads such an entry as one of another program.
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
	maxSessions  = 8                      // calls that can run at the same time, not counting reads of members
	replyTimeout = 5 * time.Second        // longest wait of a call for an answer; its context may end earlier
	blockTime    = 500 * time.Millisecond // longest wait of a read for new messages
	replyGrace   = 2 * time.Second        // how long a read waits for its answer after block has passed
	maxReaders   = 32                     // topics of a subscription that wait for messages at the same time
	maxPayload   = 16 << 20               // most bytes of a message: while the server reads it, all other clients wait
)

// A Backend keeps topics in one Redis: a server, a Cluster, or a master with Sentinels. Its
// methods are safe for concurrent use.
type Backend struct {
	broker
	namespace
	options  Options
	owned    bool          // Close closes the client
	opened   string        // the first address of the URL that Open was given; empty after New
	youngFor time.Duration // the constant youth; tests change it
	id       string        // of the process and backend, for the turns of Maintain

	readers  readerPool
	warnings warnings
	bounds   boundCache
	members  members
	closed   atomic.Bool

	ephemerals ephemeralGroups

	mu sync.Mutex
	// mending has, by delayedKey, the id after which the next Maintain continues to repair
	// delayed messages.
	repairFrom map[string]string
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Limited = (*Backend)(nil)
)

// New returns a backend that uses Redis through client, which must be a [*redis.Client] or
// a [*redis.ClusterClient] that reads from masters, without ReadOnly and its kin. For Sentinel, use a client of redis.NewFailoverClient. The
// client must stay open until the backend is closed, which does not close it. Hooks that
// were added to it before New see every command of the backend. The client keeps each backend
// in memory, even a closed one, because go-redis cannot remove hooks. So do not make many
// backends with one client.
//
// The backend makes connections of its own, with the routing, addresses, database,
// credentials, TLS settings and dialer of the client. It has at most 8 connections to each
// server. Each member of a group has one more while it waits for messages, to the server of its
// stream.
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

// readsMasters returns an error if a client reads from replicas. Such a client would show old
// messages as the present ones, and would ask each server for its list of commands.
func readsMasters(o *redis.ClusterOptions) error {
	for _, option := range []struct {
		name string
		set  bool
	}{{"RouteByLatency", o.RouteByLatency}, {"RouteRandomly", o.RouteRandomly}, {"ReadOnly", o.ReadOnly}} {
		if option.set {
			return fmt.Errorf("the client has ClusterOptions.%s, and would read from replicas: lend a client without it", option.name)
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
	for _, s := range b.members.list() { // a later one finds the backend closed
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

// Now implements [backend.Clocker]. It asks the server that has the stream, or would have it.
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

// Identity implements [backend.Identified]. A lent client for Sentinel does not tell its
// addresses, so that Address is then empty.
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
