package redisstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

const onceWindow = 8 * time.Second // so that a law can go past it

// synced is the setting by which what was answered survives a crash for certain.
// With everysec Redis puts off writing, by up to two seconds, while the disk is
// behind.
var synced = redistest.Args("--appendfsync", "always")

// Each law has a server of its own, so that it may kill it.
func TestConformance(t *testing.T) {
	var r rig
	conformance.Run(t, conformance.Suite{
		Name: "redis",
		New: func(t *testing.T) backend.Backend {
			return r.open(t, redisstream.Options{OnceWindow: onceWindow}, redistest.Start(t, synced))
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

// The laws share a cluster, each in a namespace of its own; its nodes are not
// killed here.
func TestConformanceCluster(t *testing.T) {
	var r rig
	cluster := redistest.StartCluster(t)
	namespace := func(t *testing.T) string {
		return strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())
	}
	faults := r.connectionFaults()
	faults.Lose = nil // it looks in the default namespace
	conformance.Run(t, conformance.Suite{
		Name: "redis-cluster",
		New: func(t *testing.T) backend.Backend {
			return r.open(t, redisstream.Options{Namespace: namespace(t), OnceWindow: onceWindow}, cluster.Nodes()...)
		},
		Peer:     r.peer,
		Faults:   faults,
		Lease:    2 * time.Second,
		Parallel: true,
	})
}
