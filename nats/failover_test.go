package nats_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// stopped is how long the leader does not answer: two servers elect another after
// four to nine seconds.
const stopped = 8 * time.Second

// throughFailover are the laws that must hold though the leader of the stream
// stops while they run: those about what is delivered, and in which order. Laws
// that count exactly (runs, copies, attempts that handlers see) do not, nor those
// that subscribe late: an acknowledgement or a receipt that the old leader had in
// hand may be lost, and a Subscribe in between fails, which all is promised.
var throughFailover = map[string]string{
	"B.P01": "every event reaches every group",
	"B.D01": "everything is handled to the end, through failures and retries",
	"B.D12": "what comes again after the failover is what came before it",
	"B.A01": "an acknowledgement of the old leader does not settle what has failed",
	"B.O01": "keys stay in order",
	"B.O02": "keys stay in order while the delays of retries go to another leader",
	"B.O07": "everything stays in order",
	"B.O11": "what makes room for a retry makes it again",
	"B.F02": "nothing is lost under load, though the bus is held up besides",
	"B.F03": "nothing is lost under load, though connections break besides",
}

// The leader of a law's stream stops once, when the first messages are stored,
// and goes on later, believing that it leads.
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
			b := r.open(t, clustered(), clusterOf(natstest.StartCluster(t)))
			s := &stopping{Backend: b, t: t, line: r.line(b)}
			r.alias(s, b)
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

// stopping is a backend that stops the leader of its stream as soon as it has
// stored something.
type stopping struct {
	backend.Backend
	t    *testing.T
	line *line
	once sync.Once
	done bool
}

func (s *stopping) Unwrap() backend.Backend { return s.Backend }

func (s *stopping) Publish(ctx context.Context, msgs []*backend.Message) error {
	err := s.Backend.Publish(ctx, msgs)
	if err == nil {
		s.once.Do(func() {
			time.AfterFunc(stopped, s.line.leader(s.t).Freeze())
			s.done = true
		})
	}
	return err
}
