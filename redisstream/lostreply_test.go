package redisstream_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// These tests are about a member that continues after a call without an answer, such as a call
// under way when its server was killed. The lease is long, so a message is redelivered only
// because the member knows what to ask for.

func interrupted(t *testing.T) (*redisstream.Backend, member, *faultproxy.Proxy) {
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	loaded(t, server)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	c := config()
	c.Lease = time.Minute
	return b, attach(t, b, c), proxy
}

// loseReply loses the answer of the next Receive that sends the given request.
func loseReply(t *testing.T, s member, proxy *faultproxy.Proxy, request string) {
	t.Helper()
	proxy.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(request)) })
	for {
		ds, err := s.Receive(t.Context(), 100, 0)
		require.Empty(t, ds)
		if err != nil {
			require.ErrorIs(t, err, backend.ErrUnknownOutcome)
			return
		}
	}
}

type attempt struct {
	id string
	n  int
}

func attempts(ds []backend.Delivery) (all []attempt) {
	for _, d := range ds {
		all = append(all, attempt{d.ID, d.Attempt})
	}
	return all
}

// The messages of a read whose answer is lost are delivered next, in the order of
// positions and at the same attempt. Messages that the member holds are not redelivered.
func TestLostReadComesAgainNext(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("held", 3))
	held := receive(t, s, 3)
	old := []backend.Delayed{{Delivery: held[2], For: time.Second, Refund: true}}
	held = held[:2]
	publish(t, b, batch("lost", 150)) // more than one run of the script delivers
	require.NoError(t, s.Delay(t.Context(), old))
	loseReply(t, s, proxy, "\r\nxreadgroup\r\n")
	pause(time.Second)
	publish(t, b, batch("new", 1))
	ds := receive(t, s, 152)
	want := []attempt{{"held-2", 1}}
	for _, m := range append(batch("lost", 150), batch("new", 1)...) {
		want = append(want, attempt{m.ID, 1})
	}
	require.Equal(t, want, attempts(ds))
	nothing(t, s, 600*time.Millisecond)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(append(held, ds...))), "the member holds all of it")
}

// Redelivered messages whose answer is lost are delivered next, even if a second answer is lost.
func TestLostTakeComesAgainNext(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("a", 6))
	ds := receive(t, s, 6)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[1]}, {Delivery: ds[4], Refund: true}}))
	back := receive(t, s, 2)
	require.Equal(t, []attempt{{"a-1", 2}, {"a-4", 1}}, attempts(back))
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0]}, {Delivery: ds[3], Refund: true}, {Delivery: back[0]}}))
	loseReply(t, s, proxy, redisstream.TakeDigest)
	publish(t, b, batch("new", 1))
	loseReply(t, s, proxy, redisstream.TakeDigest)
	again := receive(t, s, 4)
	require.Equal(t, []attempt{{"a-0", 2}, {"a-1", 3}, {"a-3", 1}, {"new-0", 1}}, attempts(again))
	nothing(t, s, 600*time.Millisecond)
	held := append([]backend.Delivery{ds[2], ds[5], back[1]}, again...)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(held)), "the member holds all of it")
	require.NoError(t, s.Ack(t.Context(), backend.Lend(held)))
}

// A Delay that was not carried out can be repeated, with a Refund too. It settles no other
// delivery that the member has received since.
func TestRefundThatWasNotCarriedOutIsRepeated(t *testing.T) {
	t.Parallel()
	b, s, proxy := interrupted(t)
	publish(t, b, batch("a", 2))
	ds := receive(t, s, 2)
	again := []backend.Delayed{{Delivery: ds[0], Refund: true}}
	thaw := proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, backend.ErrorAt(s.Delay(ctx, again), 0), backend.ErrUnknownOutcome)
	proxy.Cut()
	thaw()
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Delay(t.Context(), again))
	publish(t, b, batch("new", 1))
	require.Equal(t, []attempt{{"a-0", 1}, {"new-0", 1}}, attempts(receive(t, s, 2)))
}

// An Ack that is repeated after its answer was lost returns nil. It does not for a message
// that another member may have acknowledged.
func TestLostAckIsConfirmedWithinTheLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	loaded(t, server)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	lose := func(s member, id string) []*backend.Delivery {
		publish(t, b, batch(id, 1))
		ds := backend.Lend(receive(t, s, 1))
		d := *ds[0] // the slice is lent
		proxy.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(redisstream.AckDigest)) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, backend.ErrorAt(s.Ack(ctx, ds), 0), backend.ErrUnknownOutcome)
		return []*backend.Delivery{&d}
	}
	c := config()
	c.Group, c.Lease, c.ConfirmAcks = "long", time.Minute, true
	s := attach(t, b, c)
	d := lose(s, "a")
	require.NoError(t, s.Ack(t.Context(), d))
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "it was confirmed before")

	d = lose(s, "forgotten")
	require.NoError(t, dial(t, server.Addr()).XGroupSetID(t.Context(), stream, c.Group, "0").Err()) // as after a failover
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "the server has forgotten the delivery, so it redelivers the message")

	c = config()
	c.Group, c.Start, c.ConfirmAcks = "short", backend.StartLatest, true
	s = attach(t, b, c)
	other := attach(t, open(t, dial(t, server.Addr()), redisstream.Options{}), c)
	d = lose(s, "b")
	pause(c.Lease)
	require.ErrorIs(t, backend.ErrorAt(s.Ack(t.Context(), d), 0), backend.ErrLeaseLost, "its lease has expired")
	nothing(t, other, 600*time.Millisecond)
}

// proxied has servers, each behind a proxy, and a client that dials the proxies in place
// of the servers.
type proxied struct {
	servers []*redistest.Server
	proxies []*faultproxy.Proxy
	client  redis.UniversalClient
}

func (p *proxied) behind(t *testing.T, servers ...*redistest.Server) {
	p.servers = servers
	for _, s := range servers {
		p.proxies = append(p.proxies, faultproxy.New(t, s.Addr(), faultproxy.RESP))
	}
	loaded(t, servers...)
}

func (p *proxied) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for i, s := range p.servers {
		if s.Addr() == addr {
			addr = p.proxies[i].Addr()
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// drop loses the next answer to a command, wherever it is sent.
func (p *proxied) drop(command ...string) {
	for _, proxy := range p.proxies {
		proxy.DropReplyTo(command...)
	}
}

func (p *proxied) commands(names ...string) (n int64) {
	for _, proxy := range p.proxies {
		for _, name := range names {
			n += proxy.Commands()[name]
		}
	}
	return n
}

// lines starts each kind of server and makes its client, which is set to repeat commands.
var lines = map[string]func(t *testing.T, p *proxied){
	"one server": func(t *testing.T, p *proxied) {
		p.behind(t, redistest.Start(t))
		p.client = redis.NewClient(&redis.Options{Addr: p.servers[0].Addr(), Dialer: p.dial, MaxRetries: 3})
	},
	"cluster": func(t *testing.T, p *proxied) {
		c := redistest.StartCluster(t)
		p.behind(t, c.Nodes()...)
		p.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Dialer: p.dial, MaxRetries: 3, MaxRedirects: 8})
	},
	"sentinel": func(t *testing.T, p *proxied) {
		s := redistest.StartSentinel(t)
		p.behind(t, s.Servers()...)
		p.client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: s.MasterName(), SentinelAddrs: s.SentinelAddrs(), Dialer: p.dial, MaxRetries: 3,
		})
	},
}

// A command that was sent and not answered is not sent again, neither by this package nor
// by the client library, whatever its options say about repeats.
func TestWhatIsNotAnsweredIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p proxied
			line(t, &p)
			t.Cleanup(func() { require.NoError(t, p.client.Close()) })
			b := open(t, p.client, redisstream.Options{})
			s := attach(t, b, config())
			publish(t, b, batch("first", 1))
			require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 1))))

			t.Run("XADD", func(t *testing.T) { p.lose(t, b, batch("one", 1), 1, "XADD") })
			t.Run("pipeline", func(t *testing.T) { p.lose(t, b, batch("many", 20), 20, "XADD") })
			t.Run("script", func(t *testing.T) { p.lose(t, b, once(batch("once", 5)), 1, "EVALSHA") })
			t.Run("scripts", func(t *testing.T) { p.lose(t, b, once(batch("onces", 250)), 1, "EVALSHA") }) // and no other command

			all := receive(t, s, 276)
			require.NoError(t, s.Ack(t.Context(), backend.Lend(all)))
			t.Run("read", func(t *testing.T) { p.loseRead(t, b, s) })
		})
	}
}

// lose publishes ms and loses the reply. It expects this many commands of the given name.
func (p *proxied) lose(t *testing.T, b *redisstream.Backend, ms []*backend.Message, commands int64, name string) {
	before := p.commands(name)
	p.drop(name)
	err := b.Publish(t.Context(), ms)
	require.Error(t, err)
	unknown := make([]bool, len(ms))
	h := newHistory()
	h.tell(ms, err)
	each(err, len(ms), func(i int, err error) {
		unknown[i] = errors.Is(err, backend.ErrUnknownOutcome)
		require.True(t, err == nil || unknown[i] || backend.NotStored(err), "%v", err)
	})
	require.Contains(t, unknown, true)
	require.Equal(t, commands, p.commands(name)-before, "commands")
	h.require(t, stored(t, b))
	require.NoError(t, b.Ping(t.Context()))
	require.Equal(t, commands, p.commands(name)-before, "nor is it later")
	for _, m := range ms {
		m.Position = ""
	}
	if ms[0].Once {
		publish(t, b, ms)
		for i, m := range ms {
			require.Equal(t, unknown[i], m.Duplicate, "a message that was stored is known when it is sent again")
		}
	}
}

// loseRead loses the answer of a read. Other members get its messages only when the lease
// has expired. The next read returns the messages after them.
func (p *proxied) loseRead(t *testing.T, b *redisstream.Backend, s member) {
	other := attach(t, b, config())
	publish(t, b, batch("read", 3))
	before := p.commands("XREADGROUP")
	start := time.Now()
	p.drop("XREADGROUP")
	ds, err := s.Receive(t.Context(), 2, 0)
	require.Empty(t, ds)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	require.Equal(t, int64(1), p.commands("XREADGROUP")-before)
	rest := receive(t, other, 1)
	require.Equal(t, "read-2", rest[0].ID)
	require.NoError(t, other.Ack(t.Context(), backend.Lend(rest)))
	if time.Since(start) < lease/2 {
		nothing(t, other, lease/4)
	}
	ds = receive(t, other, 2)
	require.GreaterOrEqual(t, time.Since(start), lease-10*time.Millisecond)
	require.Equal(t, []string{"read-0", "read-1"}, []string{ds[0].ID, ds[1].ID})
	require.Equal(t, 2, ds[0].Attempt)
	require.NoError(t, other.Ack(t.Context(), backend.Lend(ds)))
	nothing(t, s, 600*time.Millisecond)
}

// A Delay with a Refund whose answer is lost is not carried out a second time. By then the
// member has received the message again, with the same attempt, and holds it.
func TestLostRefundIsNotRepeated(t *testing.T) {
	t.Parallel()
	var p proxied
	server := redistest.Start(t)
	p.behind(t, server)
	client := redis.NewClient(&redis.Options{Addr: p.proxies[0].Addr()})
	defer func() { require.NoError(t, client.Close()) }()
	b, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	src, err := b.Attach(t.Context(), backend.Config{Topic: "t", Group: "g", Lease: 30 * time.Second})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "t", ID: "one"}}))
	receive := func() backend.Delivery {
		for {
			ds, err := src.Receive(t.Context(), 1, 0)
			if len(ds) > 0 {
				return ds[0]
			}
			require.NoError(t, err)
		}
	}
	first := receive()
	p.proxies[0].DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(redisstream.DelayDigest)) })
	back := []backend.Delayed{{Delivery: first, Refund: true}}
	delay := src.(backend.Delayer).Delay
	require.ErrorIs(t, backend.ErrorAt(delay(t.Context(), back), 0), backend.ErrUnknownOutcome)
	second := receive()
	require.Equal(t, first.Attempt, second.Attempt, "it was given back, and does not count")
	require.ErrorIs(t, backend.ErrorAt(delay(t.Context(), back), 0), backend.ErrLeaseLost)
	require.NoError(t, src.(backend.Extender).Extend(t.Context(), []*backend.Delivery{&second}), "it is still held")
}

// A member whose connection breaks before its first read returns an error, as after a
// break during a read.
func TestDeadReaderIsTold(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	b := open(t, dial(t, proxy.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	asked := proxy.DropReplyTo("CLIENT")
	_, err := s.Receive(t.Context(), 1, 0)
	<-asked
	require.ErrorIs(t, err, backend.ErrUnavailable)
	ds, err := s.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Empty(t, ds)
}
