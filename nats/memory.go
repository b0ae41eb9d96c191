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

// A memory is what a member knows of which deliveries the server remembers. One that
// crashed may have forgotten the last of them: it answers no acknowledgement of
// those, and hands them out again.
//
// Deliveries are of a generation, of which there is a new one whenever the server is
// asked what it remembers: what it sends from then on may be more than it says.
type memory struct {
	mu         sync.Mutex
	generation int64
	reached    uint64 // the highest sequence that came, and was not found to be forgotten

	gone   atomic.Int64            // nothing before this generation is remembered: the group was gone
	lapses atomic.Pointer[[]lapse] // by generation; never changed
}

// A lapse says that of what came before a generation nothing is remembered beyond a
// sequence.
type lapse struct {
	generation int64
	sequence   uint64
}

// mostLapses is how many are kept: what was held at an older one is not held any more.
const mostLapses = 16

// errForgotten is the error for a delivery that the server does not know of.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// came notes that deliveries up to a sequence have come, and returns their
// generation.
func (m *memory) came(sequence uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached = max(m.reached, sequence)
	return m.generation
}

// turn begins a generation, and returns it with what was reached before.
func (m *memory) turn() (generation int64, reached uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached, m.reached = m.reached, 0
	m.generation++
	return m.generation, reached
}

// wiped notes that the group was gone.
func (m *memory) wiped() {
	generation, _ := m.turn()
	m.gone.Store(generation)
}

// remembers notes that of what came before a generation, up to reached, a sequence
// is the last that is remembered.
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

// known lists the lapses that were found.
func (m *memory) known() []lapse {
	if all := m.lapses.Load(); all != nil {
		return *all
	}
	return nil
}

// has reports whether the server remembers a delivery, as far as is known.
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

// recollect asks the server what it remembers, and reports whether it is of use to ask
// again. What it does not say is taken to be remembered.
func (s *source) recollect(ctx context.Context) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	generation, reached := s.memory.turn()
	last := reached
	var info jetstream.ConsumerInfo
	err := s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info)
	if err == nil && info.Delivered.Stream > 0 { // a server that is only starting says 0
		last = info.Delivered.Stream
	}
	s.memory.remembers(generation, reached, last)
	return err != nil && !errors.Is(err, backend.ErrDenied)
}

// forgotten returns errForgotten if the server was found not to remember the
// delivery.
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
