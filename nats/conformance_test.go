package nats_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/faultproxy"
	"github.com/seed41896749/eventbus/internal/natstest"
	"github.com/seed41896749/eventbus/nats"
)

type line struct {
	server *natstest.Server
	proxy  *faultproxy.Proxy
	o      nats.Options
	conn   *natsgo.Conn
}

type rig struct {
	mu    sync.Mutex
	lines map[backend.Backend]line
}

func (r *rig) open(t *testing.T, o nats.Options, s *natstest.Server) backend.Backend {
	p := faultproxy.New(t, s.Addr())
	conn, err := natsgo.Connect("nats://"+p.Addr(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond), natsgo.ReconnectBufSize(-1), natsgo.IgnoreDiscoveredServers(), natsgo.PingInterval(time.Second), natsgo.MaxPingsOutstanding(2))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := nats.New(conn, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines == nil {
		r.lines = map[backend.Backend]line{}
	}
	r.lines[b] = line{s, p, o, conn}
	return b
}

func (r *rig) line(b backend.Backend) line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[b]
}

// connected waits until b's connection is well again.
func (r *rig) connected(t *testing.T, b backend.Backend) {
	require.Eventually(t, r.line(b).conn.IsConnected, 10*time.Second, 10*time.Millisecond)
}

// weakerAnywhere is what JetStream does not promise.
var weakerAnywhere = map[string]string{
	"C24": "the server hands out what falls due together, or nearly so, in no certain order",
}

// weakerAlone is what a single server does not promise besides: it writes the
// state of its consumers about a second late, whatever its sync_interval.
var weakerAlone = with(weakerAnywhere, map[string]string{
	"D11": "what was acknowledged within about a second before a crash of the only server may come again",
	"T05": "after a crash of the only server a delay may be up to a second short",
})

func with(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func TestConformance(t *testing.T) {
	var r rig
	conformance.Run(t, conformance.Suite{
		Name: "nats",
		New: func(t *testing.T) backend.Backend {
			return r.open(t, nats.Options{OnceWindow: 8 * time.Second}, natstest.Start(t))
		},
		Peer: func(t *testing.T, b backend.Backend) backend.Backend {
			return r.open(t, r.line(b).o, r.line(b).server)
		},
		Faults: conformance.Faults{
			Down: func(_ *testing.T, b backend.Backend) func() {
				p := r.line(b).proxy
				p.Refuse(true)
				return func() { p.Refuse(false) }
			},
			Freeze: func(_ *testing.T, b backend.Backend) func() { return r.line(b).proxy.Freeze() },
			Swallow: func(_ *testing.T, b backend.Backend) func() {
				p := r.line(b).proxy
				p.Swallow(true)
				return func() { p.Swallow(false) }
			},
			DropReply: func(_ *testing.T, b backend.Backend, kind conformance.Request) {
				mark := map[conformance.Request]string{
					conformance.RequestPublish: "HPUB bus.", conformance.RequestReceive: "CONSUMER.MSG.NEXT", conformance.RequestAck: "+ACK",
				}[kind]
				r.line(b).proxy.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte(mark)) })
			},
			Commands: func(_ *testing.T, b backend.Backend) int64 { return int64(r.line(b).conn.Stats().OutMsgs) },
			Cut:      func(_ *testing.T, b backend.Backend) { r.line(b).proxy.Cut() },
			Restart:  func(t *testing.T, b backend.Backend) { s := r.line(b).server; s.Stop(); s.Run(); r.connected(t, b) },
			Kill:     func(t *testing.T, b backend.Backend) { s := r.line(b).server; s.Kill(); s.Run(); r.connected(t, b) },
		},
		Weaker:   weakerAlone,
		Lease:    2 * time.Second,
		Parallel: true,
	})
}
