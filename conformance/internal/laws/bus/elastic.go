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
)

// elasticLaws are about a number of handlers that changes.
var elasticLaws = []law.Law{
	{
		ID: "B.E01", Name: "scale-now", Promise: "raising SetConcurrency lets more handlers run at once; lowering it cuts off no running handler, but starts none beyond the new number",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-ignores-limits"},
		Test: buslaw.On(scaleNow),
	}, {
		ID: "B.E02", Name: "scale-limits", Promise: "SetConcurrency and ScaleUp refuse to exceed MaxConcurrency, ScaleDown refuses to go below Concurrency, and ScaleDown ends no busy handler",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-ignores-limits", "bus-exceeds-limits"},
		Test: buslaw.On(scaleLimits),
	}, {
		ID: "B.E03", Name: "handler-per-worker", Promise: "with PerWorker, runs of the same handler never overlap, and SetConcurrency and the replacement of a stuck handler create fresh ones",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-ignores-limits", "bus-ignores-timeouts"},
		Test: buslaw.On(perWorker),
	}, {
		ID: "B.E04", Name: "scale-in-a-burst", Promise: "a burst of events is handled completely, each event once and in key order, while the number of handlers drops to the minimum and rises again",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-limits", "bus-ignores-order", "bus-runs-twice"},
		Test: buslaw.On(scaleInABurst),
	},
}

// gatedHandlers counts the running handlers. Each of them returns when the test sends to the
// gate.
type gatedHandlers struct {
	gate chan struct{}

	mu        sync.Mutex
	now, most int
}

func (h *gatedHandlers) handle(ctx context.Context, _ *eventbus.Delivery) error {
	h.add(1)
	defer h.add(-1)
	select {
	case <-h.gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *gatedHandlers) add(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += n
	h.most = max(h.most, h.now)
}

// peak returns the greatest number of handlers that ran at once since its last call.
func (h *gatedHandlers) peak() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	most, h.most = h.most, h.now
	return most
}

func scaleNow(e *buslaw.Env) {
	e.Start()
	h := &gatedHandlers{gate: make(chan struct{})}
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
	h := &gatedHandlers{gate: make(chan struct{})}
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

// overlapCheck makes handlers that detect overlapping runs of the same handler.
type overlapCheck struct {
	made  int // without a lock, because PerWorker makes one handler at a time
	twice atomic.Bool
}

func (s *overlapCheck) fresh(h eventbus.Handler) func() eventbus.Handler {
	return func() eventbus.Handler {
		s.made++
		var busy atomic.Bool
		return func(ctx context.Context, d *eventbus.Delivery) error {
			if busy.Swap(true) {
				s.twice.Store(true)
			}
			defer busy.Store(false)
			return h(ctx, d)
		}
	}
}

func perWorker(e *buslaw.Env) {
	e.Start()
	release, gate, entered := make(chan struct{}), make(chan struct{}), make(chan bool, 3)
	free := sync.OnceFunc(func() { close(release) })
	e.Cleanup(free)
	w := &overlapCheck{}
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 1, MaxConcurrency: 3, Timeout: stuckTimeout(e)},
		eventbus.PerWorker(w.fresh(func(_ context.Context, d *eventbus.Delivery) error {
			switch {
			case d.ID == "stuck" && d.Attempt <= 1:
				<-release
			case d.Type == "wait":
				entered <- true
				<-gate
			}
			return nil
		})))
	e.PublishEvents(&eventbus.Event{ID: "stuck"})
	e.AwaitDone(1, "g") // in another handler
	e.Must(s.SetConcurrency(3))
	es := buslaw.Events(3)
	for _, ev := range es {
		ev.Type = "wait"
	}
	e.PublishEvents(es...)
	for range es {
		buslaw.Wait(e, entered, "three handlers run beside the stuck one")
	}
	if w.made != 4 {
		e.Failf("got %d handlers for a run that is stuck and 3 others, want 4", w.made)
	}
	close(gate)
	free()
	e.PublishEvents(named("more-", 40)...)
	e.AwaitDone(45, "g") // the stuck run too
	if w.twice.Load() {
		e.Failf("two runs of one handler were at the same time")
	}
	e.Settled("g")
}

func scaleInABurst(e *buslaw.Env) {
	e.Start()
	const n, most = 600, 8
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 1, MaxConcurrency: most}, func(ctx context.Context, d *eventbus.Delivery) error {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		return failSome(ctx, d)
	})
	es := buslaw.KeyedEvents(n, 20)
	for i := range 3 {
		e.Must(s.SetConcurrency(most))
		e.PublishEvents(es[200*i : 200*i+150]...)
		e.AwaitDone(200*i+40, "g")
		e.Must(s.SetConcurrency(1))
		e.PublishEvents(es[200*i+150 : 200*i+200]...)
		e.AwaitDone(200*i+100, "g")
		for s.ScaleUp() {
		}
		e.AwaitDone(200*i+200, "g")
		for end := time.Now().Add(e.Patience()); ; time.Sleep(law.Pause) {
			for s.ScaleDown() {
			}
			if now, _, _ := s.Handlers(); now == 1 {
				break
			} else if time.Now().After(end) {
				e.Failf("%d handlers are left of an idle subscription, want 1", now)
			}
		}
	}
	inOrder(e, "g")
	e.CheckHistory("g")
	e.Settled("g")
	if n := e.Recorder.Succeeded("g"); e.Grace == 0 && n != 600 {
		e.Failf("600 events were handled %d times, want each once", n)
	}
}
