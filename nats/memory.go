package nats

import (
	"context"
	"fmt"
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

	gone  atomic.Int64          // nothing before this generation is remembered: the group was gone
	lapse atomic.Pointer[lapse] // the last that was found
}

// A lapse says that of what came before a generation nothing is remembered beyond a
// sequence.
type lapse struct {
	generation int64
	sequence   uint64
}

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
	if sequence >= reached {
		m.reached = max(m.reached, reached)
	} else if was := m.lapse.Load(); was == nil || was.generation < generation {
		m.lapse.Store(&lapse{generation, sequence})
	}
}

// recollect asks the server what it remembers. If it does not say, all of it is
// taken to be.
func (s *source) recollect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	generation, reached := s.memory.turn()
	last := reached
	var info jetstream.ConsumerInfo
	if err := s.backend.ask(ctx, consumerInfo(s.place, s.config.Group), nil, &info); err == nil {
		last = info.Delivered.Stream
	}
	s.memory.remembers(generation, reached, last)
}

// forgotten returns errForgotten if the server was found not to remember the
// delivery.
func (r *receipt) forgotten() error {
	l := r.source.memory.lapse.Load()
	if l == nil || r.generation >= l.generation {
		return nil
	}
	if m, err := metaOf(r.reply); err == nil && m.sequence > l.sequence {
		return errForgotten
	}
	return nil
}
