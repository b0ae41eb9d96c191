package nats_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/natstest"
	"github.com/seed41896749/eventbus/nats"
)

const (
	lease      = 2 * time.Second
	onceWindow = 8 * time.Second // so that a law can go past it
)

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

// Each law has a server of its own, so that it may kill it.
func TestConformance(t *testing.T) {
	var r rig
	conformance.Run(t, conformance.Suite{
		Name: "nats",
		New: func(t *testing.T) backend.Backend {
			return r.open(t, nats.Options{OnceWindow: onceWindow}, alone(natstest.Start(t)))
		},
		Peer:     r.peer,
		Faults:   r.faults(),
		Weaker:   weakerAlone,
		Lease:    lease,
		Parallel: true,
	})
}

// clustered are the options of a backend on three servers, in a namespace of its
// own. JetStream reserves the bytes of each stream on each server.
func clustered() nats.Options {
	return nats.Options{Namespace: strings.ToLower(rand.Text()), OnceWindow: onceWindow, Replicas: 3, MaxBytes: 16 << 20}
}

// The laws share a cluster, each in a namespace of its own; those that crash it
// have one of their own.
func TestConformanceCluster(t *testing.T) {
	var r rig
	shared := natstest.StartCluster(t)
	faults := r.faults()
	for _, f := range []*func(*testing.T, backend.Backend){&faults.Kill, &faults.Restart} {
		harm := *f
		*f = func(t *testing.T, b backend.Backend) {
			require.NotSame(t, r.line(b).servers[0], shared.Servers()[0], "others use this cluster: add the law to crashing")
			harm(t, b)
		}
	}
	conformance.Run(t, conformance.Suite{
		Name: "nats-cluster",
		New: func(t *testing.T) backend.Backend {
			o := clustered()
			if crashes(t.Name()) {
				return r.open(t, o, clusterOf(natstest.StartCluster(t)))
			}
			b := r.open(t, o, clusterOf(shared))
			t.Cleanup(func() { r.line(b).clear(t) })
			return b
		},
		Peer:     r.peer,
		Faults:   faults,
		Weaker:   weakerAnywhere,
		Grace:    map[string]time.Duration{"T05": 10 * time.Second}, // until there is a leader again
		Lease:    lease,
		Parallel: true,
	})
}

// clear removes the streams of a law: each is work for the servers, if nobody
// uses it.
func (l *line) clear(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	js := l.admin(t)
	for name := range js.StreamNames(ctx, jetstream.WithStreamListSubject(l.namespace()+".>")).Name() {
		require.NoError(t, js.DeleteStream(ctx, name))
	}
}

// crashing are the laws that end their broker.
var crashing = []string{"P02", "P08", "D09", "D11", "T05", "B.F01"}

func crashes(test string) bool {
	_, law, _ := strings.Cut(test, "/")
	id, _, _ := strings.Cut(law, "-")
	return slices.Contains(crashing, id)
}
