package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/each"
)

// A sampler asks the backend for the backend.Stats of the groups of a bus, and keeps the
// answers. It uses one goroutine, which runs only while the sampler asks.
type sampler struct {
	telemetry *Telemetry
	bus       *eventbus.Bus
	ctx       context.Context // the context of the calls to the backend
	cancel    context.CancelFunc
	asking    sync.WaitGroup

	mu    sync.Mutex
	next  time.Time     // the answers are old from this time on
	ended chan struct{} // closed when the newest call of ask has ended
	known map[place]backend.Stats
}

const (
	askTimeout = 5 * time.Second        // the most time to ask about all groups
	patience   = 250 * time.Millisecond // the most time that a collection of metrics waits for new answers
)

func newSampler(t *Telemetry, bus *eventbus.Bus) *sampler {
	s := &sampler{telemetry: t, bus: bus, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	close(s.ended)
	return s
}

// stop ends the call of ask that runs, waits for it, and prevents later calls.
func (s *sampler) stop() {
	s.mu.Lock()
	s.cancel() // while mu is held, so that begin starts no ask after it
	s.mu.Unlock()
	s.asking.Wait()
}

// sample returns the newest answers. If they are old it first asks for new answers, and
// waits for them at most for the time patience.
func (s *sampler) sample() map[place]backend.Stats {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.begin():
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known // the caller may read the map, because ask replaces it and never changes it
}

// begin starts ask if the answers are old. It returns a channel that is closed when the
// newest call of ask has ended.
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

// ask asks the backend about one group after another, and keeps the answers.
func (s *sampler) ask() {
	ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
	defer cancel()
	answers, last := map[place]backend.Stats{}, place{}
	for _, sub := range s.bus.Subscriptions() { // sorted, so that members of one group are adjacent
		at := place{sub.Topic(), sub.Group()}
		if at == last {
			continue
		}
		last = at
		stats, err := sub.Stats(ctx)
		switch {
		case err == nil:
			shown := place{at.topic, each.Label(at.group)}
			if before, twice := answers[shown]; !twice || before.Lag < stats.Lag { // of several instances, the one that is behind
				answers[shown] = stats
			}
		case !errors.Is(err, errors.ErrUnsupported) && s.ctx.Err() == nil:
			s.telemetry.count(s.telemetry.failures, 1,
				labels{topic: at.topic, group: at.group, scope: "stats", errorType: errorType(err)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = answers
}
