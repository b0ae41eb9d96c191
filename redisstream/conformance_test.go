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

const onceWindow = 8 * time.Second // so that a law can go past it

// Each law has a server of its own, so that it may kill it. EVENTBUS_REDIS_NAME is the
// server's name in the report. scripts/versions.sh has put that server first on the path.
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

// The laws share a cluster, each in a namespace of its own. Laws that crash their cluster
// have one of their own.
// The suite on a Cluster runs with `make conformance`, or with EVENTBUS_REDIS_FULL=1. With
// the race detector, both suites at once overload a small machine: calls to the server take
// longer than the leases of the laws.
func TestConformanceCluster(t *testing.T) {
	if os.Getenv("EVENTBUS_CONFORMANCE_OUT") == "" && os.Getenv("EVENTBUS_REDIS_FULL") == "" {
		t.Skip("runs with make conformance")
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
			require.False(t, r.line(b).servers[0] == shared.Nodes()[0], "others use this cluster: add the law to crashing")
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

// crashing has the laws that end their broker.
var crashing = []string{"P02", "P08", "D09", "D11", "D18", "T05", "B.F01", "B.H14"}

func crashes(test string) bool {
	_, law, _ := strings.Cut(test, "/")
	id, _, _ := strings.Cut(law, "-")
	return slices.Contains(crashing, id)
}
