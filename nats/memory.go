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

// A memory tells a member which of its deliveries the server may have forgotten. A server
// that crashed may have forgotten the latest deliveries. It does not answer their
// acknowledgements, and redelivers them as if they were new.
//
// The member asks the server which delivery was the last. Deliveries received after the
// question are of a new generation, because the answer says nothing about them.
type memory struct {
	mu         sync.Mutex
	generation int64
	reached    uint64 // the highest sequence received and not known to be forgotten

	gone   atomic.Int64            // the server forgot all generations before this one, because the consumer was gone
	lapses atomic.Pointer[[]lapse] // sorted by generation; a slice is replaced, never changed
}

// A lapse says that the server forgot the deliveries of earlier generations beyond a
// sequence.
type lapse struct {
	generation int64
	sequence   uint64
}

// mostLapses bounds the list. Deliveries older than the oldest lapse have lost their
// lease.
const mostLapses = 16

// errForgotten means that the server has forgotten a delivery.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// came notes deliveries up to a sequence, and returns their generation.
func (m *memory) came(sequence uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = max(m.reached, sequence)
	return m.generation
}

// turn begins a generation, and returns it with the highest sequence of the one before.
func (m *memory) turn() (generation int64, reached uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached, m.reached = m.reached, 0
	m.generation++
	return m.generation, reached
}

// wiped notes that the consumer was gone, with all its deliveries.
func (m *memory) wiped() {
	generation, _ := m.turn()
	m.gone.Store(generation)
}

// remembers notes the server's answer: before generation the member had received up to
// reached, and the server remembers deliveries up to sequence.
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

// known lists the lapses.
func (m *memory) known() []lapse {
	if all := m.lapses.Load(); all != nil {
		return *all
	}
	return nil
}

// has reports whether the server remembers a delivery, as far as the member knows.
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

// recollect asks the server which of the member's deliveries it remembers, and reports
// whether to ask again later. Without an answer, all deliveries count as remembered.
func (s *source) recollect(ctx context.Context) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	generation, reached := s.memory.turn()
	last := reached
	var info jetstream.ConsumerInfo
	err := s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info)
	if err == nil && info.Delivered.Stream > 0 { // a starting server says 0
		last = info.Delivered.Stream
	}
	s.memory.remembers(generation, reached, last)
	return err != nil && !errors.Is(err, backend.ErrDenied)
}

// forgotten returns errForgotten if the server has forgotten the delivery, as far as the
// member knows.
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
