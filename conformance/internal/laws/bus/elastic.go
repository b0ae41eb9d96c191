package bus

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// elasticLaws are about a number of handlers that changes.
var elasticLaws = []law.Law{
	{
		ID: "B.E01", Name: "scale-now", Promise: "more handlers run at once after SetConcurrency; with fewer, running ones are not cut, and no more than the new number run then",
		Needs: []law.Need{law.NeedExtender}, Saboteurs: []string{"bus-fixes-concurrency"},
		Test: buslaw.On(scaleNow),
	}, {
		ID: "B.E02", Name: "scale-limits", Promise: "SetConcurrency and ScaleUp refuse more handlers than MaxConcurrency, ScaleDown fewer than Concurrency, and ScaleDown ends no busy handler",
		Needs: []law.Need{law.NeedExtender}, Saboteurs: []string{"bus-fixes-concurrency", "bus-scales-beyond"},
		Test: buslaw.On(scaleLimits),
	},
}

// A hall counts handlers, which stay until a gate opens for each of them.
type hall struct {
	gate chan struct{}

	mu        sync.Mutex
	now, most int
}

func (h *hall) handle(ctx context.Context, _ *eventbus.Delivery) error {
	h.add(1)
	defer h.add(-1)
	select {
	case <-h.gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *hall) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += n
	h.most = max(h.most, h.now)
}

// peak returns the most handlers since the last call, and forgets it.
func (h *hall) peak() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most, h.most = h.most, h.now
	return most
}

func scaleNow(e *buslaw.Env) {
	e.Start()
	h := &hall{gate: make(chan struct{})}
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 1, MaxConcurrency: 4}, h.handle)
	e.PublishEvents(buslaw.Events(20)...)
	e.AwaitRuns(1, "g")
	e.Must(s.SetConcurrency(4))
	start := time.Now()
	e.AwaitRuns(4, "g")
	e.By(start, 0, "three more handlers ran")
	e.Still(4, e.Soon())
	e.Must(s.SetConcurrency(2))
	e.Still(4, e.Soon())
	for range 4 {
		h.gate <- struct{}{}
	}
	e.AwaitDone(4, "g")
	e.AwaitRuns(6, "g")
	e.Still(6, e.Soon())
	h.peak()
	for range 10 {
		h.gate <- struct{}{}
	}
	e.AwaitDone(14, "g")
	if most := h.peak(); most > 2 {
		e.Failf("%d handlers ran at the same time, want 2 at most", most)
	}
	close(h.gate)
	e.AwaitDone(20, "g")
}

func scaleLimits(e *buslaw.Env) {
	e.Start()
	h := &hall{gate: make(chan struct{})}
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 1, MaxConcurrency: 3}, h.handle)
	for _, n := range []int{0, 4, -1} {
		if s.SetConcurrency(n) == nil {
			e.Failf("SetConcurrency(%d) of a subscription with 1 to 3 handlers: got no error", n)
		}
	}
	steps := func(what string, step func() bool, want ...bool) {
		e.Helper()
		for i, w := range want {
			if got := step(); got != w {
				now, _, _ := s.Handlers()
				e.Failf("%s, call %d, with %d handlers: got %v, want %v", what, i+1, now, got, w)
			}
		}
	}
	steps("ScaleDown", s.ScaleDown, false)
	steps("ScaleUp", s.ScaleUp, true, true, false)
	steps("ScaleDown", s.ScaleDown, true)
	e.PublishEvents(buslaw.Events(2)...)
	e.AwaitRuns(2, "g")
	steps("ScaleDown of a busy subscription", s.ScaleDown, false)
	if now, least, most := s.Handlers(); now != 2 || least != 1 || most != 3 {
		e.Failf("Handlers: got %d, %d, %d, want 2, 1, 3", now, least, most)
	}
	close(h.gate)
	e.AwaitDone(2, "g")
}
