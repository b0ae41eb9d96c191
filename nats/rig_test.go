package nats_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/nats"
)

// A rig makes backends on real servers behind proxies, and knows the link of each.
type rig struct {
	proxyrig.Rig[*link]

	lends bool // the backends use a connection of the test
}

// A system is a single server or a cluster of three.
type system struct {
	servers []*natstest.Server
	run     func() // starts the servers that have ended, and waits for them
}

func alone(s *natstest.Server) system { return system{[]*natstest.Server{s}, s.Run} }

func clusterOf(c *natstest.Cluster) system { return system{c.Servers(), c.Run} }

// A link connects a backend with its system.
type link struct {
	system
	proxies []*faultproxy.Proxy // one for each server
	conn    *natsgo.Conn
	options nats.Options

	kills int // so far
}

// Proxies implements [proxyrig.Link].
func (l *link) Proxies() []*faultproxy.Proxy { return l.proxies }

// open makes a backend on a system.
func (r *rig) open(t *testing.T, o nats.Options, on system) backend.Backend {
	l := &link{system: on, options: o}
	var urls []string
	for _, s := range on.servers {
		p := faultproxy.New(t, s.Addr())
		l.proxies = append(l.proxies, p)
		urls = append(urls, "nats://"+p.Addr())
	}
	options := []natsgo.Option{
		natstest.Client(t),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50 * time.Millisecond), natsgo.ReconnectBufSize(-1),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}), // not to stderr: faults break connections all the time
		natsgo.IgnoreDiscoveredServers(), natsgo.PingInterval(time.Second), natsgo.MaxPingsOutstanding(2),
	}
	b, err := r.connect(l, strings.Join(urls, ","), options)
	require.NoError(t, err)
	t.Cleanup(l.conn.Close)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	r.Add(b, l)
	return b
}

func (r *rig) connect(l *link, urls string, options []natsgo.Option) (b *nats.Backend, err error) {
	if !r.lends {
		b, l.conn, err = nats.Connect(urls, l.options, options...)
		return b, err
	}
	if l.conn, err = natsgo.Connect(urls, options...); err != nil {
		return nil, err
	}
	return nats.New(l.conn, l.options)
}

func (r *rig) peer(t *testing.T, b backend.Backend) backend.Backend {
	l := r.Link(b)
	return r.open(t, l.options, l.system)
}

// current is the proxy of the server that the connection uses.
func (l *link) current() *faultproxy.Proxy {
	addr := l.conn.ConnectedAddr()
	for _, p := range l.proxies {
		if p.Addr() == addr {
			return p
		}
	}
	return l.proxies[0]
}

// faults returns faults of connections and of the test's own servers.
func (r *rig) faults() conformance.Faults {
	f := r.Faults()
	f.DropReply = func(_ *testing.T, b backend.Backend, kind conformance.Request) {
		l := r.Link(b)
		mark := l.mark(kind)
		l.current().DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, mark) })
	}
	f.Commands = func(_ *testing.T, b backend.Backend) int64 { return int64(r.Link(b).conn.Stats().OutMsgs) }
	f.Restart = func(t *testing.T, b backend.Backend) {
		l := r.Link(b)
		for _, s := range l.servers {
			s.Stop()
		}
		l.recover(t)
	}
	f.Kill = func(t *testing.T, b backend.Backend) {
		l := r.Link(b)
		for _, s := range l.victims(t) {
			s.Kill()
		}
		l.recover(t)
	}
	return f
}

// mark is a text that identifies a kind of request.
func (l *link) mark(kind conformance.Request) []byte {
	switch kind {
	case conformance.RequestPublish:
		return []byte("HPUB " + l.namespace() + ".")
	case conformance.RequestReceive:
		return []byte("CONSUMER.MSG.NEXT")
	}
	return []byte("+ACK")
}

func (l *link) namespace() string {
	if l.options.Namespace == "" {
		return "bus"
	}
	return l.options.Namespace
}

// victims are the servers that the next crash kills. In a cluster, odd crashes kill the
// leader of the test's stream, and another server takes over. Even crashes kill all three,
// and only written state survives.
func (l *link) victims(t *testing.T) []*natstest.Server {
	l.kills++
	if len(l.servers) == 1 || l.kills%2 == 0 {
		return l.servers
	}
	return []*natstest.Server{l.leader(t)}
}

// leader returns the server that leads the first stream, or any server if there is none.
func (l *link) leader(t *testing.T) *natstest.Server {
	for info := range l.admin(t).ListStreams(t.Context()).Info() {
		for _, s := range l.servers {
			if info.Cluster != nil && info.Cluster.Leader == s.Name() {
				return s
			}
		}
	}
	return l.servers[0]
}

// admin connects to the servers without the proxies.
func (l *link) admin(t *testing.T) jetstream.JetStream {
	var urls []string
	for _, s := range l.servers {
		urls = append(urls, s.URL())
	}
	conn, err := natsgo.Connect(strings.Join(urls, ","), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

// recover starts the servers that have ended, and waits until each stream and consumer has
// a leader and the backend is connected.
func (l *link) recover(t *testing.T) {
	l.run()
	js := l.admin(t)
	require.Eventually(t, func() bool { return led(t.Context(), js) }, 30*time.Second, 20*time.Millisecond, "a stream or a consumer has no leader")
	require.Eventually(t, l.conn.IsConnected, 10*time.Second, 10*time.Millisecond)
}

// led reports whether every stream and every consumer answers.
func led(ctx context.Context, js jetstream.JetStream) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	streams := js.StreamNames(ctx)
	for name := range streams.Name() {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return false
		}
		consumers := s.ConsumerNames(ctx)
		for name := range consumers.Name() {
			if _, err := s.Consumer(ctx, name); err != nil {
				return false
			}
		}
		if consumers.Err() != nil {
			return false
		}
	}
	return streams.Err() == nil
}

// A fixture is a test's own server, a backend on it, and a separate client.
type fixture struct {
	js   jetstream.JetStream
	conn *natsgo.Conn // the backend's
	b    *nats.Backend
}

func newFixture(t *testing.T, o nats.Options, args ...string) *fixture {
	t.Helper()
	s := natstest.Start(t, args...)
	direct, conn := connect(t, s), connect(t, s)
	js, err := jetstream.New(direct)
	require.NoError(t, err)
	b, err := nats.New(conn, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &fixture{js, conn, b}
}

func connect(t *testing.T, s *natstest.Server) *natsgo.Conn {
	t.Helper()
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// bus makes a bus on the backend, which is shut down with the test.
func (p *fixture) bus(t *testing.T, o eventbus.Options) *eventbus.Bus {
	b := eventbustest.On(t, p.b, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = b.Shutdown(ctx)
	})
	return b
}

// The names that the backend gives the topic "orders" and its group "g".
const (
	ordersStream  = "bus=orders"
	ordersSubject = "bus.orders"
)

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: ordersStream, Subjects: []string{ordersSubject}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxBytes: 1 << 30, Duplicates: 2 * time.Minute, AllowDirect: true,
	}
}

func consumerConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Durable: "g", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: -1}
}

func member() backend.Config {
	return backend.Config{Topic: "orders", Group: "g", Lease: 30 * time.Second, MaxInFlight: 100}
}
