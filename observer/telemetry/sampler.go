package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A sampler asks the backend about the groups of a bus, and keeps the answers. It has one
// goroutine while it asks.
type sampler struct {
	telemetry *Telemetry
	bus       *eventbus.Bus
	ctx       context.Context // of the calls
	cancel    context.CancelFunc
	asking    sync.WaitGroup

	mu    sync.Mutex
	next  time.Time     // when to ask again
	ended chan struct{} // closed when the last ask has ended
	known map[place]backend.Stats
}

const (
	askTimeout = 5 * time.Second        // for all groups
	patience   = 250 * time.Millisecond // how long a collection waits for the answers
)

func newSampler(t *Telemetry, bus *eventbus.Bus) *sampler {
	s := &sampler{telemetry: t, bus: bus, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	close(s.ended)
	return s
}

// stop ends the calls under way, and later ones.
func (s *sampler) stop() {
	s.mu.Lock()
	s.cancel() // with the lock: after it, no sample begins to ask
	s.mu.Unlock()
	s.asking.Wait()
}

// sample returns the last answers, after it has asked for new ones if they are old.
func (s *sampler) sample() map[place]backend.Stats {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.begin():
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known // which is replaced, never changed
}

// begin starts ask if the answers are old, and returns a channel that is closed when the
// last ask has ended.
func (s *sampler) begin() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
	default:
		return s.ended
	}
	if now := time.Now(); s.ctx.Err() == nil && !now.Before(s.next) {
		s.next, s.ended = now.Add(s.telemetry.options.SampleEvery), make(chan struct{})
		ended := s.ended
		s.asking.Go(func() {
			defer close(ended)
			s.ask()
		})
	}
	return s.ended
}

// ask asks the backend about each group once, one group after another.
func (s *sampler) ask() {
	ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
	defer cancel()
	answers, last := map[place]backend.Stats{}, place{}
	for _, sub := range s.bus.Subscriptions() { // sorted, so members of a group are adjacent
		at := place{sub.Topic(), sub.Group()}
		if at == last {
			continue
		}
		last = at
		stats, err := sub.Stats(ctx)
		switch {
		case err == nil:
			answers[at] = stats
		case !errors.Is(err, errors.ErrUnsupported) && s.ctx.Err() == nil:
			s.telemetry.count(s.telemetry.failures, 1,
				labels{topic: at.topic, group: at.group, scope: "stats", errorType: errorType(err)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = answers
}
