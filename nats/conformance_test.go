package nats_test

import (
	"context"
	"crypto/rand"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

const (
	lease      = 2 * time.Second
	onceWindow = 8 * time.Second // short enough for a test to wait for its end
)

// hitch is the extra time that a cluster on one machine needs for steps of milliseconds,
// because three servers agree on each write.
const hitch = 300 * time.Millisecond

// behind is how long the lists of a cluster may lag; see backend.Admin.
const behind = time.Second

// weakerAnywhere lists the tests whose promises JetStream keeps in a weaker form everywhere.
var weakerAnywhere = map[string]string{
	"C24": "the server redelivers messages roughly when they fall due rather than by position, and in no particular order if they fall due together",
}

// weakerAlone adds the tests of a single server. It writes the state of its consumers about
// a second late, whatever its sync_interval.
var weakerAlone = with(weakerAnywhere, map[string]string{
	"D11": "messages acknowledged within about a second before a crash of the only server may be redelivered",
	"T05": "after a crash of the only server, a delay may be up to a second too short",
})

// weakerClustered adds the tests of a cluster.
var weakerClustered = with(weakerAnywhere, map[string]string{
	"M03-lag-truth": "the server that leads the group counts the unread messages, and learns of a stored message a moment late",
})

// inFull skips a suite that a plain `go test` leaves to `make test` and `make conformance`,
// because each suite takes a minute or more. EVENTBUS_NATS_FULL=1 runs it too.
func inFull(t *testing.T) {
	if os.Getenv("EVENTBUS_CONFORMANCE_OUT") == "" && os.Getenv("EVENTBUS_NATS_FULL") == "" {
		t.Skip("make test and make conformance run it")
	}
}

func with(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// Each test has a server of its own, so that it may kill it.
func TestConformance(t *testing.T) {
	single(t, new(rig), "nats", nats.Options{}, natstest.Start)
}

// TestConformanceLent runs the suite on a connection of the caller.
func TestConformanceLent(t *testing.T) {
	inFull(t)
	single(t, &rig{lends: true}, "nats-lent", nats.Options{}, natstest.Start)
}

// TestConformanceStream runs the suite with all topics in one stream.
func TestConformanceStream(t *testing.T) {
	inFull(t)
	single(t, new(rig), "nats-stream", nats.Options{Stream: "events"}, natstest.Start)
}

// weakerStream adds the tests of a shared stream on a single server.
var weakerStream = with(weakerAlone, map[string]string{
	"M03-lag-truth":      "a group learns of stored messages a moment late, and the stream does not show how many those are",
	"P22-once-new-topic": "a shared stream remembers the IDs of a deleted topic until their window ends",
})

// single runs the suite on single servers.
func single(t *testing.T, r *rig, name string, o nats.Options, start func(testing.TB, ...string) *natstest.Server) {
	weaker := weakerAlone
	if o.Stream != "" {
		weaker = weakerStream
	}
	conformance.Run(t, conformance.Suite{
		Name: name,
		New: func(t *testing.T) backend.Backend {
			o := o
			o.OnceWindow = onceWindow
			return r.open(t, o, alone(start(t)))
		},
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			o := o
			o.MaxMessages = int64(messages)
			return r.open(t, o, alone(start(t)))
		},
		Peer:     r.peer,
		Faults:   r.faults(),
		Weaker:   weaker,
		Lease:    lease,
		Parallel: true,
	})
}

// clustered returns options for three servers and an own namespace.
func clustered() nats.Options {
	return nats.Options{Namespace: strings.ToLower(rand.Text()), OnceWindow: onceWindow, Replicas: 3}
}

// The tests share a cluster, each in its own namespace. A test that crashes servers has a
// cluster to itself.
func TestConformanceCluster(t *testing.T) {
	inFull(t)
	var r rig
	slots := make(chan struct{}, 10) // bounds the tests that use the shared cluster at a time: it is three servers on one machine
	shared := natstest.StartCluster(t)
	faults := r.faults()
	for _, f := range []*func(*testing.T, backend.Backend){&faults.Kill, &faults.Restart} {
		harm := *f
		*f = func(t *testing.T, b backend.Backend) {
			require.NotSame(t, r.Link(b).servers[0], shared.Servers()[0], "other tests use this cluster: add this one to crashing")
			harm(t, b)
		}
	}
	open := func(t *testing.T, o nats.Options) backend.Backend {
		if crashes(t.Name()) {
			o.OnceWindow = 0 // the default, 2 minutes, is longer than the election of a leader
			return r.open(t, o, clusterOf(natstest.StartCluster(t)))
		}
		b := r.open(t, o, clusterOf(shared))
		t.Cleanup(func() { r.Link(b).clear(t) })
		return b
	}
	conformance.Run(t, conformance.Suite{
		Name: "nats-cluster",
		New: func(t *testing.T) backend.Backend {
			slots <- struct{}{}
			t.Cleanup(func() { <-slots })
			return open(t, clustered())
		},
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			o := clustered()
			o.MaxMessages = int64(messages)
			return open(t, o)
		},
		Peer:   r.peer,
		Faults: faults,
		Weaker: weakerClustered,
		Grace: map[string]time.Duration{
			"T05":   10 * time.Second, // a new leader is elected
			"B.D17": hitch,
			"C39":   behind, "C40": behind, "C41": behind, "G01": behind, "G02": behind, "B.G04": behind,
		},
		Lease:    lease,
		Parallel: true,
	})
}

// clear removes the streams of a test, because unused streams cost the servers work.
func (l *link) clear(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	js := l.admin(t)
	for name := range js.StreamNames(ctx, jetstream.WithStreamListSubject(l.namespace()+".>")).Name() {
		require.NoError(t, js.DeleteStream(ctx, name))
	}
}

// crashing lists the tests that crash their broker.
var crashing = []string{"P02", "P08", "D09", "D11", "D18", "T05", "B.F01", "B.H14"}

func crashes(test string) bool {
	_, name, _ := strings.Cut(test, "/")
	id, _, _ := strings.Cut(name, "-")
	return slices.Contains(crashing, id)
}

// stopped is the leader's pause. The two other servers elect a new leader after four to
// nine seconds.
const stopped = 8 * time.Second

// throughFailover lists the tests that pass although the stream's leader pauses while they run:
// the ones about deliveries and their order. Others fail without a broken promise: exact counts
// of runs, copies and attempts, because an acknowledgement or an answer in the old leader's hands
// may be lost, and a Subscribe during the election.
var throughFailover = map[string]string{
	"B.P01": "every event reaches every group",
	"B.D01": "everything is handled to the end, through failures and retries",
	"B.D12": "what is redelivered after the failover is what was delivered before it",
	"B.A01": "an acknowledgement of the old leader does not settle what has failed",
	"B.O01": "keys stay in order",
	"B.O02": "keys stay in order while the delays of retries go to another leader",
	"B.O07": "everything stays in order",
	"B.O11": "what makes room for a retry makes it again",
	"B.F02": "nothing is lost under load, though the bus is held up besides",
	"B.F03": "nothing is lost under load, though connections break besides",
}

// The leader of a test's stream pauses once the first messages are stored. Later it continues
// as if it still led.
func TestConformanceFailover(t *testing.T) {
	inFull(t)
	var r rig
	grace := map[string]time.Duration{}
	for id := range throughFailover {
		grace[id] = stopped
	}
	conformance.Run(t, conformance.Suite{
		Name: "nats-failover",
		New: func(t *testing.T) backend.Backend {
			o := clustered()
			o.OnceWindow = 0 // the default, 2 minutes, is longer than the election of a leader
			b := r.open(t, o, clusterOf(natstest.StartCluster(t)))
			s := &stopping{Backend: b, t: t, link: r.Link(b)}
			r.Add(s, r.Link(b))
			t.Cleanup(func() { require.True(t, s.done, "the law stored nothing: its leader did not stop") })
			return s
		},
		Peer:     r.peer,
		Faults:   r.faults(),
		Grace:    grace,
		Only:     slices.Collect(maps.Keys(throughFailover)),
		Lease:    lease,
		Parallel: true,
	})
}

// stopping is a backend that pauses its stream's leader after its first publish.
type stopping struct {
	backend.Backend
	t    *testing.T
	link *link
	once sync.Once
	done bool
}

func (s *stopping) Unwrap() backend.Backend { return s.Backend }

func (s *stopping) Publish(ctx context.Context, msgs []*backend.Message) error {
	err := s.Backend.Publish(ctx, msgs)
	if err == nil {
		s.once.Do(func() {
			time.AfterFunc(stopped, s.link.leader(s.t).Freeze())
			s.done = true
		})
	}
	return err
}

// TestConformanceOld runs the suite on the oldest supported version.
func TestConformanceOld(t *testing.T) {
	path := natstest.Old(t, "2.10")
	single(t, new(rig), "nats-2.10", nats.Options{}, func(t testing.TB, args ...string) *natstest.Server {
		return natstest.StartOld(t, path, args...)
	})
}

// A server version that loses track of redeliveries is refused.
func TestTooOld(t *testing.T) {
	t.Parallel()
	s := natstest.StartOld(t, natstest.Old(t, "2.9"))
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	_, err = nats.New(conn, nats.Options{})
	refusedAsOld(t, err, conn.ConnectedServerVersion())

	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	_, err = nats.Open(t.Context(), u)
	refusedAsOld(t, err, conn.ConnectedServerVersion())
}

func refusedAsOld(t *testing.T, err error, version string) {
	t.Helper()
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorContains(t, err, version, "the version that it has")
	require.ErrorContains(t, err, "2.10", "the version that it must have")
}
