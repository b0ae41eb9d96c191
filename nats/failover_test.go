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

// stopped is the leader's pause. The two other servers elect a new leader after four to
// nine seconds.
const stopped = 8 * time.Second

// throughFailover lists the laws that hold although the stream's leader pauses while they
// run: the laws about deliveries and their order. Others do not hold. Exact counts of
// runs, copies and attempts fail because an acknowledgement or an answer in the old
// leader's hands may be lost. A Subscribe during the election fails. None of this breaks a
// promise.
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

// The leader of a law's stream pauses once the first messages are stored. Later it
// continues, believing that it still leads.
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

// stopping is a backend that pauses its stream's leader after its first publish.
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
