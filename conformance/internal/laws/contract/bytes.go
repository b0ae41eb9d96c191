package contract

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var byteLaws = []law.Law{
	{
		ID: "C83", Name: "at-most-max-bytes", Promise: "Receive returns at most maxBytes, or one larger message alone; the rest comes first in the next, in order, and has spent no attempt",
		Faults: []string{"receive-exceeds"}, Test: atMostMaxBytes,
	}, {
		ID: "C84", Name: "redelivered-max-bytes", Promise: "Receive keeps to maxBytes with redelivered messages too, in order, and the rest has spent no attempt",
		Faults: []string{"receive-exceeds"}, Test: redeliveredMaxBytes,
	},
}

// A sizing has the messages and the bounds of a law about maxBytes. Messages have 100 B to
// 200 KiB and bounds 1 KiB to 1 MiB, so some messages are larger than their bound.
type sizing struct {
	*law.Env
	seed   uint64
	random *rand.Rand
	ms     []*backend.Message
}

// newSizing publishes n messages. The first small of them have 100 B.
func newSizing(e *law.Env, n, small int) *sizing {
	s := &sizing{Env: e, seed: rand.Uint64(), ms: law.Numbered("", n)}
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	for i, m := range s.ms {
		m.Payload = make([]byte, 100)
		if i >= small {
			m.Payload = make([]byte, s.upTo(100, 200<<10))
		}
	}
	for part := range slices.Chunk(s.ms, 20) {
		e.Publish(part...)
	}
	return s
}

// upTo returns a random number. Each power of two is equally probable.
func (s *sizing) upTo(least, most float64) int {
	return int(least * math.Pow(most/least, s.random.Float64()))
}

// receive expects all messages in order, with this attempt and within the bound of each
// Receive. The first bound is 64 KiB, until the given number of messages has come.
func (s *sizing) receive(src backend.Source, attempt, first int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.Patience())
	defer cancel()
	got, bound, last := make([]string, 0, len(s.ms)), 64<<10, time.Now()
	for len(got) < len(s.ms) && ctx.Err() == nil {
		ds := s.TakeBytes(ctx, src, 20, int64(bound))
		if len(ds) == 0 {
			if time.Since(last) > 2*s.Soon() {
				break
			}
			time.Sleep(law.Pause)
			continue // with the same bound, because the message may be larger
		}
		last = time.Now()
		size := 0
		for i := range ds {
			size += ds[i].Size()
			s.Attempt(ds[i], attempt)
		}
		if size > bound && len(ds) > 1 {
			s.Failf("got %d messages of %d bytes, want at most %d (seed %d)", len(ds), size, bound, s.seed)
		}
		got = append(got, law.IDs(ds)...)
		s.Ack(src, ds...)
		if len(got) >= first {
			bound = s.upTo(1<<10, 1<<20)
		}
	}
	if want := law.IDsOf(s.ms); !slices.Equal(got, want) {
		s.Failf("got  %v\nwant %v (seed %d)", got, want, s.seed)
	}
}

// atMostMaxBytes tests law C83. Sizes change suddenly.
func atMostMaxBytes(e *law.Env) {
	src := e.AttachAs(backend.Config{Group: "g", Lease: 40 * e.Lease})
	const n, small = 100, 25
	newSizing(e, n, small).receive(src, 1, small)
}

func redeliveredMaxBytes(e *law.Env) {
	src := e.Attach("g")
	const n = 30
	s := newSizing(e, n, 0)
	e.Receive(src, n)
	time.Sleep(e.Lease + e.Soon())
	s.receive(src, 2, 0)
}
