package redisstream_test

import (
	"cmp"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

const onceWindow = 8 * time.Second // short enough for a test to wait for its end

// Each test has a server of its own, so that it may kill it. EVENTBUS_REDIS_NAME is the name
// of the server in the report of `make versions`, which puts that server first on the path.
func TestConformance(t *testing.T) {
	var r rig
	conformance.Run(t, conformance.Suite{
		Name: cmp.Or(os.Getenv("EVENTBUS_REDIS_NAME"), "redis"),
		New: func(t *testing.T) backend.Backend {
			return r.open(t, redisstream.Options{OnceWindow: onceWindow}, redistest.Start(t))
		},
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			return r.open(t, redisstream.Options{MaxMessages: messages}, redistest.Start(t))
		},
		Peer:     r.peer,
		Faults:   r.faults(),
		Lease:    2 * time.Second,
		Parallel: true,
	})
}

// The tests share a cluster, each in a namespace of its own, because a cluster takes seconds
// to start. Only those that crash their cluster have one to themselves. The suite on a cluster
// takes as long as the one on a server, so a plain `go test` leaves it to `make test` and
// `make conformance`. EVENTBUS_REDIS_FULL=1 runs it too.
func TestConformanceCluster(t *testing.T) {
	if os.Getenv("EVENTBUS_CONFORMANCE_OUT") == "" && os.Getenv("EVENTBUS_REDIS_FULL") == "" {
		t.Skip("make test and make conformance run it")
	}
	var r rig
	shared := redistest.StartCluster(t)
	open := func(t *testing.T, o redisstream.Options) backend.Backend {
		o.Namespace = strings.ToLower(rand.Text())
		cluster := shared
		if crashes(t.Name()) {
			cluster = redistest.StartCluster(t)
		}
		return r.open(t, o, cluster.Nodes()...)
	}
	faults := r.faults()
	for _, f := range []*func(*testing.T, backend.Backend){&faults.Kill, &faults.Restart} {
		harm := *f
		*f = func(t *testing.T, b backend.Backend) {
			require.False(t, r.Link(b).servers[0] == shared.Nodes()[0], "other tests use this cluster: add this one to crashing")
			harm(t, b)
		}
	}
	conformance.Run(t, conformance.Suite{
		Name: "redis-cluster",
		New: func(t *testing.T) backend.Backend {
			return open(t, redisstream.Options{OnceWindow: onceWindow})
		},
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			return open(t, redisstream.Options{MaxMessages: messages})
		},
		Peer:     r.peer,
		Faults:   faults,
		Lease:    2 * time.Second,
		Parallel: true,
	})
}

// crashing lists the tests that crash their broker.
var crashing = []string{"P02", "P08", "D09", "D11", "D18", "T05", "B.F01", "B.H14"}

func crashes(test string) bool {
	_, name, _ := strings.Cut(test, "/")
	id, _, _ := strings.Cut(name, "-")
	return slices.Contains(crashing, id)
}
