package main

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A broker is a real server of a test's own.
type broker interface {
	URL() string
	Kill()
	Run()
}

// A kind is a kind of broker that the command supports.
type kind struct {
	name   string
	driver backend.Driver
	start  func(t *testing.T) broker

	// forgets bounds how old the acknowledgements and deliveries are that a killed server
	// forgets.
	forgets time.Duration
}

var kinds = []kind{
	{"redis", redisstream.Driver{}, func(t *testing.T) broker { return redistest.Start(t) }, 0},
	{"nats", nats.Driver{}, func(t *testing.T) broker { return natstest.Start(t) }, 2 * time.Second},
}

// clusters are kinds of brokers with several servers, for tests that need only their URL.
var clusters = []kind{
	{"redis-cluster", redisstream.Driver{}, func(t *testing.T) broker {
		return several{url: "redis+cluster://" + redistest.StartCluster(t).Nodes()[0].Addr()}
	}, 0},
	{"nats-cluster", nats.Driver{}, func(t *testing.T) broker {
		return several{url: natstest.StartCluster(t).Servers()[0].URL() + "?replicas=3"}
	}, 0},
}

// several is a cluster with this URL.
type several struct {
	broker // nil: no server of it is killed
	url    string
}

func (s several) URL() string { return s.url }

// onBrokers runs a test on a server of each kind; its commands use the server.
func onBrokers(t *testing.T, test func(t *testing.T, b broker)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			b := k.start(t)
			t.Setenv(urlVariable, b.URL())
			test(t, b)
		})
	}
}

// onEach runs a test on a bench in memory and on one for each kind of broker. Tables have ages in
// seconds, so tests of them have the machine to themselves.
func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("memory", func(t *testing.T) { test(t, newBench(t)) })
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			test(t, &bench{t: t, b: openBackend(t, k.driver, k.start(t).URL())})
		})
	}
}

// onEachAtOnce is onEach for tests that wait for a long time: the benches run at the same time.
func onEachAtOnce(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { t.Parallel(); test(t, newBench(t)) })
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{t: t, b: openBackend(t, k.driver, k.start(t).URL())})
		})
	}
}

// openBackend opens a backend and closes it with the test.
func openBackend(t *testing.T, d backend.Driver, rawURL string) backend.Backend {
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	b, err := d.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
