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

// lose publishes ms and loses the answer. It expects so many commands of the given name.
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
			require.Equal(t, unknown[i], m.Duplicate, "a message that was stored is known when it comes again")
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
