package redisstream_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/proxyrig"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A rig makes backends on real servers, each behind proxies of its own, and knows the link of
// each backend.
type rig struct{ proxyrig.Rig[*link] }

// A link holds the servers of a backend, and the proxies and client between them.
type link struct {
	servers []*redistest.Server
	proxies []*faultproxy.Proxy // one for each server
	client  redis.UniversalClient
	options redisstream.Options
}

// Proxies implements [proxyrig.Link].
func (l *link) Proxies() []*faultproxy.Proxy { return l.proxies }

// open makes a backend on servers. Several servers must be a cluster.
func (r *rig) open(t *testing.T, o redisstream.Options, servers ...*redistest.Server) backend.Backend {
	l := &link{servers: servers, options: o}
	for _, s := range servers {
		l.proxies = append(l.proxies, faultproxy.New(t, s.Addr(), faultproxy.RESP))
	}
	if len(servers) == 1 {
		l.client = redis.NewClient(&redis.Options{Addr: l.proxies[0].Addr()})
	} else {
		l.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Addr()}, Dialer: l.dial})
	}
	t.Cleanup(func() { require.NoError(t, l.client.Close()) })
	b, err := redisstream.New(l.client, o)
	require.NoError(t, err)
	b.SetYouth(0) // so that the suite sees trimming soon
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	r.Add(b, l)
	return b
}

// dial leads to the proxy of a node, because the nodes announce their own addresses.
func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for i, s := range l.servers {
		if s.Addr() == addr {
			addr = l.proxies[i].Addr()
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

func (r *rig) peer(t *testing.T, b backend.Backend) backend.Backend {
	l := r.Link(b)
	return r.open(t, l.options, l.servers...)
}

// loaded makes sure that servers know the scripts. Otherwise a dropped answer might be
// that a server does not know one.
func loaded(t *testing.T, servers ...*redistest.Server) {
	for _, s := range servers {
		for _, text := range redisstream.ScriptTexts() {
			require.NoError(t, s.Client(t).ScriptLoad(t.Context(), text).Err())
		}
	}
}

// connectionFaults returns the faults that harm one backend only.
func (r *rig) connectionFaults() conformance.Faults {
	f := r.Faults()
	f.DropReply = func(t *testing.T, b backend.Backend, kind conformance.Request) {
		loaded(t, r.Link(b).servers...)
		r.Each(b, func(p *faultproxy.Proxy) { p.DropReply(request(kind)) })
	}
	f.Lose = func(t *testing.T, b backend.Backend, topic, position string) {
		l := r.Link(b)
		namespace := l.options.Namespace
		if namespace == "" {
			namespace = "bus"
		}
		n, err := l.client.XDel(t.Context(), namespace+":{"+topic+"}", position).Result()
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	}
	f.Commands = func(_ *testing.T, b backend.Backend) (n int64) {
		r.Each(b, func(p *faultproxy.Proxy) {
			for _, count := range p.Commands() {
				n += count
			}
		})
		return n
	}
	return f
}

// faults returns the faults of connections, and the faults of a server that no other test
// uses.
func (r *rig) faults() conformance.Faults {
	f := r.connectionFaults()
	f.Restart = func(t *testing.T, b backend.Backend) {
		for _, s := range r.Link(b).servers {
			s.Stop()
		}
		r.run(t, b)
	}
	f.Kill = func(t *testing.T, b backend.Backend) {
		for _, s := range r.Link(b).servers {
			s.Kill()
		}
		r.run(t, b)
	}
	return f
}

// run starts the servers of b again, and waits until a cluster is whole.
func (r *rig) run(t *testing.T, b backend.Backend) {
	servers := r.Link(b).servers
	for _, s := range servers {
		s.Run()
	}
	if len(servers) == 1 {
		return
	}
	for _, s := range servers {
		node := s.Client(t)
		require.Eventually(t, func() bool {
			info, err := node.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		}, 20*time.Second, 10*time.Millisecond)
	}
}

// request returns a function that recognizes requests of a kind.
func request(kind conformance.Request) func([]byte) bool {
	marks := map[conformance.Request][]string{
		conformance.RequestPublish: {"\r\nxadd\r\n", redisstream.PublishDigest, "-- publish"},
		conformance.RequestReceive: {"\r\nxreadgroup\r\n"},
		conformance.RequestAck:     {"\r\nxack\r\n", redisstream.AckDigest, "-- ack", redisstream.SettleDigest, "-- settle"},
	}[kind]
	return func(chunk []byte) bool {
		for _, mark := range marks {
			if bytes.Contains(chunk, []byte(mark)) {
				return true
			}
		}
		return false
	}
}

// alone reports whether no other test runs beside this one, so that a test may bound times.
func alone() bool { return os.Getenv("EVENTBUS_ALONE") == "1" }
