package bus

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/limiter"
)

// holdsBytes tests law B.R09, about bounds in bytes while sizes change. Two subscriptions
// share a limiter, and a third one has an option.
func holdsBytes(e *buslaw.Env) {
	e.Start()
	const bound, largest, small, large = 1 << 20, 100 << 10, 40, 60
	var open atomic.Bool
	open.Store(true)
	waits := func(context.Context, *eventbus.Delivery) error {
		for !open.Load() {
			time.Sleep(law.Tick)
		}
		return nil
	}
	shared, alone := &scale{Limiter: limiter.MaxBytes(bound)}, &scale{Limiter: limiter.MaxInFlight(1000)}
	members := []*eventbus.Subscription{
		e.Member("g1", eventbus.SubscribeOptions{Group: "g1", Concurrency: 2, MaxBytes: -1, Limiter: shared}, waits),
		e.Member("g2", eventbus.SubscribeOptions{Group: "g2", Concurrency: 2, MaxBytes: -1, Limiter: shared}, waits),
		e.Member("g3", eventbus.SubscribeOptions{Group: "g3", Concurrency: 2, MaxBytes: bound, Limiter: alone}, waits),
	}
	e.PublishEvents(buslaw.Events(small)...)
	e.AwaitDone(3*small, "g1", "g2", "g3")
	open.Store(false)
	for _, s := range members {
		s.Pause() // so that the next read meets all large events
	}
	es := buslaw.Events(small + large)[small:]
	random := rand.New(rand.NewPCG(1, 2))
	for _, event := range es {
		event.Payload = make([]byte, 1+random.IntN(largest-1<<10))
	}
	e.PublishEvents(es...)
	for _, s := range members {
		s.Resume()
	}
	for end := time.Now().Add(e.Patience()); time.Now().Before(end) && min(shared.load(), alone.load()) < bound/2; {
		time.Sleep(law.Tick)
	}
	time.Sleep(e.Soon()) // for events that no member should read
	open.Store(true)
	e.AwaitDone(3*(small+large), "g1", "g2", "g3")
	for _, s := range []*scale{shared, alone} {
		if most := s.load(); most > bound+largest || most < bound/2 {
			e.Failf("%d bytes were held, want at least %d, and at most %d and one event of %d", most, bound/2, bound, largest)
		}
	}
}

// A scale is a limiter that weighs the messages held.
type scale struct {
	limiter.Limiter
	mu         sync.Mutex
	held, most int64
}

func (s *scale) Fill(g limiter.Grant, n int, bytes int64) {
	s.mu.Lock()
	s.held += bytes
	s.most = max(s.most, s.held)
	s.mu.Unlock()
	s.Limiter.Fill(g, n, bytes)
}

func (s *scale) Release(r limiter.Released) {
	s.mu.Lock()
	s.held -= r.Bytes
	s.mu.Unlock()
	s.Limiter.Release(r)
}

// load returns the most bytes that were held at one time.
func (s *scale) load() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}
