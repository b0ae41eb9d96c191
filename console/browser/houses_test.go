package browser_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A broker is a server that a test kills and starts again.
type broker interface {
	URL() string
	Kill()
	Run()
}

// A kind is a kind of backend.
type kind struct {
	name   string
	driver backend.Driver
	start  func(t *testing.T) broker // nil: it is no server
	url    func(t *testing.T) string // of a backend without a server

	members bool // it knows the members of a group, and events in flight beside delayed ones
}

var kinds = []kind{
	{name: "memory", driver: inmemory.Driver{}, url: func(*testing.T) string { return "mem:" }, members: true},
	{name: "bolt", driver: bolt.Driver{}, url: func(t *testing.T) string { return "bolt://" + filepath.Join(t.TempDir(), "shop.db") }, members: true},
	{name: "redis", driver: redisstream.Driver{}, start: func(t *testing.T) broker { return redistest.Start(t) }, members: true},
	{name: "nats", driver: nats.Driver{}, start: func(t *testing.T) broker { return natstest.Start(t) }},
}

// open opens a backend of the kind, and starts its server. The server is nil if the kind has none.
func (k kind) open(t *testing.T) (backend.Backend, broker) {
	t.Helper()
	if k.start == nil {
		return openURL(t, k.driver, k.url(t)), nil
	}
	server := k.start(t)
	return openURL(t, k.driver, server.URL()), server
}

func openURL(t *testing.T, d backend.Driver, raw string) backend.Backend {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	b, err := d.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A site serves a handler at a port of 127.0.0.1, and can be ended and started again.
type site struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
}

func serve(t *testing.T, h http.Handler) *site {
	t.Helper()
	s := &site{t: t, handler: h, address: "127.0.0.1:0"}
	s.run()
	t.Cleanup(s.end)
	return s
}

// run serves, at the address of the last time.
func (s *site) run() {
	s.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.address)
	require.NoError(s.t, err)
	s.address = l.Addr().String()
	s.server = &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}
	server := s.server
	go server.Serve(l) // its error does not matter: it always ends with an error
}

func (s *site) end() { _ = s.server.Close() }

// origin is the origin of the site by its address, and as is the same by another name.
func (s *site) origin() string { return "http://" + s.address }

func (s *site) as(name string) string {
	_, port, _ := net.SplitHostPort(s.address)
	return "http://" + net.JoinHostPort(name, port)
}

// quick are the options of a console that only reads, and finds late groups in seconds.
var quick = console.Options{Hosts: []string{"127.0.0.1", "localhost"}, Behind: time.Second, Stuck: 4 * time.Second}

// writable are the same of a console in which ann may do everything.
func writable() console.Options {
	o := quick
	o.Allow = func(*http.Request, console.Action) error { return nil }
	o.Who = func(*http.Request) string { return "ann" }
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}
