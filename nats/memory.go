package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// A memory knows which deliveries of a member the server may have forgotten. A server that
// crashed may have forgotten its last deliveries. It does not answer acknowledgements of
// them, and redelivers their messages as if they were new.
//
// After an error that may come from a crash, the member asks the server for the sequence of
// its last delivery. With each question a new generation of deliveries begins, because the
// answer says nothing about deliveries after the question.
type memory struct {
	mu         sync.Mutex
	generation int64
	reached    uint64 // highest received sequence that the server is not known to have forgotten

	gone   atomic.Int64            // the server has forgotten all earlier generations, because the consumer was deleted
	lapses atomic.Pointer[[]lapse] // sorted by generation; a change makes a new slice
}

// A lapse means that the server has forgotten deliveries: all with a lower generation and a
// higher sequence.
type lapse struct {
	generation int64
	sequence   uint64
}

// mostLapses is the most lapses that a memory keeps. The leases of deliveries before the
// oldest lapse have expired.
const mostLapses = 16

// errForgotten means that the server has forgotten a delivery.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// came notes that the member has received deliveries up to a sequence. It returns the
// generation to which these deliveries belong.
func (m *memory) came(sequence uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = max(m.reached, sequence)
	return m.generation
}

// turn begins a new generation of deliveries. It returns the number of this generation, and
// the highest sequence that earlier generations reached.
func (m *memory) turn() (generation int64, reached uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached, m.reached = m.reached, 0
	m.generation++
	return m.generation, reached
}

// wiped notes that the consumer was deleted, and all its deliveries with it.
func (m *memory) wiped() {
	generation, _ := m.turn()
	m.gone.Store(generation)
}

// remembers notes an answer of the server: it remembers deliveries up to sequence. Before
// this generation the member had received deliveries up to reached. If reached is higher,
// the server has forgotten some.
func (m *memory) remembers(generation int64, reached, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = max(m.reached, min(reached, sequence))
	if sequence >= reached {
		return
	}
	all := append(slices.Clone(m.known()), lapse{generation, sequence})
	slices.SortFunc(all, func(a, b lapse) int { return cmp.Compare(a.generation, b.generation) })
	all = all[max(0, len(all)-mostLapses):]
	m.lapses.Store(&all)
}

// known returns the lapses.
func (m *memory) known() []lapse {
	if all := m.lapses.Load(); all != nil {
		return *all
	}
	return nil
}

// has returns false if the server is known to have forgotten the delivery with this
// generation and sequence.
func (m *memory) has(generation int64, sequence uint64) bool {
	for _, l := range slices.Backward(m.known()) {
		if generation >= l.generation {
			break
		}
		if sequence > l.sequence {
			return false
		}
	}
	return true
}

// recollect asks the server which deliveries of the member the server remembers, and notes
// the answer in s.memory. If the server does not answer, recollect notes no delivery as
// forgotten. again means that the member must ask again later.
func (s *source) recollect(ctx context.Context) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	generation, reached := s.memory.turn()
	last := reached
	var info jetstream.ConsumerInfo
	err := s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info)
	if err == nil && info.Delivered.Stream > 0 { // 0 is no answer: the server is starting
		last = info.Delivered.Stream
	}
	s.memory.remembers(generation, reached, last)
	return err != nil && !errors.Is(err, backend.ErrDenied)
}

// forgotten returns errForgotten if the server is known to have forgotten the delivery.
func (r *receipt) forgotten() error {
	all := r.source.memory.known()
	if len(all) == 0 || r.generation >= all[len(all)-1].generation {
		return nil
	}
	if m, err := metaOf(r.reply); err == nil && !r.source.memory.has(r.generation, m.sequence) {
		return errForgotten
	}
	return nil
}
