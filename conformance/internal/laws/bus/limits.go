package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/limiter/rate"
	"github.com/seed41896749/eventbus/observer"
)

// limitLaws are about rates and limits.
var limitLaws = []law.Law{
	{
		ID: "B.R01", Name: "rate", Promise: "subscriptions that share a rate limiter together handle no more events than its rate and burst allow, and eventually handle all of them",
		Engine: true, Faults: []string{"bus-ignores-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			const perSecond, burst, groups = 100, 5, 2
			l := rate.New(perSecond, burst)
			start := time.Now()
			for _, g := range []string{"g1", "g2"} {
				e.Member(g, eventbus.SubscribeOptions{Group: g, Concurrency: 4, Limiter: l}, buslaw.Succeed)
			}
			e.PublishEvents(buslaw.Events(25)...)
			e.AwaitDone(50, "g1", "g2")
			if took, least := time.Since(start), time.Second*(50-burst-groups)/perSecond; took < least {
				e.Failf("50 events took %v at %d a second and a burst of %d, want at least %v", took, perSecond, burst, least)
			}
		}),
	},
	{
		ID: "B.R02", Name: "shared-limiter", Promise: "subscriptions that share a limiter never hold more events together than it has slots, and each makes progress",
		Engine: true, Faults: []string{"bus-ignores-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			l, most := limiter.MaxInFlight(5), newGauge(nil)
			for _, g := range []string{"g1", "g2"} {
				e.Member(g, eventbus.SubscribeOptions{Group: g, Concurrency: 4, Limiter: l}, most.handler(func(context.Context, *eventbus.Delivery) error {
					time.Sleep(e.Lease / 50)
					return nil
				}))
			}
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(40, "g1", "g2")
			if n := most.load(); n > 5 {
				e.Failf("%d events ran at once, want 5 at most", n)
			}
		}),
	},
	{
		ID: "B.R03", Name: "breaker", Promise: "when a breaker opens, reads stop, the subscription stays ready and reports the reason, and all events are handled after the pause",
		Engine: true, Faults: []string{"bus-ignores-limits", "bus-forgives-failures"},
		Test: buslaw.On(breaks),
	},
	{
		ID: "B.R04", Name: "breaker-trials", Promise: "after its pause, a breaker lets only the trials through, and opens again if one fails",
		Engine: true, Faults: []string{"bus-exceeds-limits"},
		Test: buslaw.On(triesAgain),
	},
	{
		ID: "B.R05", Name: "adaptive", Promise: "an adaptive limiter holds no more events than it has slots, gains slots while runs succeed and loses them while runs fail",
		Engine: true, Faults: []string{"bus-ignores-limits", "bus-exceeds-limits"},
		Test: buslaw.On(adapts),
	},
	{
		ID: "B.R06", Name: "drop-newest", Promise: "with DropNewest, a Publish that finds no room returns ErrDropped, the observer is notified, and its event is never stored",
		Engine: true, Faults: []string{"bus-ignores-options", "bus-blurs-results"},
		Test: buslaw.On(func(e *buslaw.Env) { drops(e, eventbus.DropNewest, true) }),
	},
	{
		ID: "B.R07", Name: "drop-oldest", Promise: "with DropOldest, the calls that have waited longest return ErrDropped, the observer is notified, and their events are never stored, but the newest is",
		Engine: true, Faults: []string{"bus-ignores-options", "bus-blurs-results"},
		Test: buslaw.On(func(e *buslaw.Env) { drops(e, eventbus.DropOldest, false) }),
	},
	{
		ID: "B.R08", Name: "redelivered", Promise: "at most MaxRedelivered handlers run redelivered events at once, fresh events are handled in the meantime, and no attempt is used up",
		Needs: []law.Need{law.NeedDelayer}, Faults: []string{"bus-ignores-limits"},
		Test: buslaw.On(leavesHandlers),
	},
	{
		ID: "B.R09", Name: "max-bytes", Promise: "MaxBytes and a shared limiter of bytes are exceeded by at most one event when event sizes change, and all events are handled",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-limits"}, Test: buslaw.On(holdsBytes),
	},
}

// breaks tests law B.R03, about a breaker that opens.
func breaks(e *buslaw.Env) {
	e.Start()
	pause := e.Lease / 2
	b := limiter.NewBreaker(limiter.BreakerOptions{Runs: 4, Pause: pause})
	var healed atomic.Bool
	s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 2, Limiter: b}, func(context.Context, *eventbus.Delivery) error {
		if healed.Load() {
			return nil
		}
		return buslaw.ErrBroken
	})
	e.PublishEvents(buslaw.KeyedEvents(20, 5)...)
	var limited stateChanged
	e.Await("the subscription is limited", func(r *buslaw.Recorder) bool {
		all := buslaw.Observed[stateChanged](r)
		i := slices.IndexFunc(all, func(c stateChanged) bool { return c.To == observer.Limited })
		if i >= 0 {
			limited = all[i]
		}
		return i >= 0
	})
	if limited.Err == nil || !strings.Contains(limited.Err.Error(), "breaker") {
		e.Failf("got limited with error %v, want the reason", limited.Err)
	}
	e.Must(e.Bus.Ready(e.Context()))
	healed.Store(true)
	received := s.Counts().Received
	time.Sleep(pause / 4)
	if after := s.Counts().Received; after > received && b.State() == limiter.Open { // all runs succeed by now, so the breaker was open when received was read
		e.Failf("an open breaker let %d events through", after-received)
	}
	e.AwaitDone(20, "g")
	e.PublishEvents(&eventbus.Event{ID: "trial"}) // one more, in case all events were held while the breaker was open
	e.AwaitDone(21, "g")
	for end := time.Now().Add(e.Patience()); b.State() != limiter.Closed; time.Sleep(law.Tick) {
		if time.Now().After(end) {
			e.Failf("got a breaker that is %s after all events succeeded, want closed", b.State())
		}
	}
	e.CheckHistory("g")
}

// triesAgain tests law B.R04, about the trials of a breaker.
func triesAgain(e *buslaw.Env) {
	var mu sync.Mutex
	var opened []opening
	const opens, trials = 3, 2
	pause, done := e.Lease/8, make(chan struct{})
	e.Open(eventbus.Options{Observer: observer.Observer{
		Received: func(r observer.Received) {
			mu.Lock()
			defer mu.Unlock()
			if len(opened) > 0 {
				opened[len(opened)-1].received += r.Events
			}
		},
		StateChanged: func(c observer.StateChanged) {
			mu.Lock()
			defer mu.Unlock()
			if w, ok := errors.AsType[*limiter.WaitError](c.Err); ok {
				if opened = append(opened, opening{until: w.Until}); len(opened) == opens {
					close(done)
				}
			}
		},
	}}, nil)
	b := limiter.NewBreaker(limiter.BreakerOptions{Runs: 4, Pause: pause, Trials: trials})
	e.Member("g", eventbus.SubscribeOptions{
		Concurrency: 4, MaxInFlight: 4, Limiter: b, Retry: eventbus.Retry{Initial: time.Hour, Max: time.Hour},
	}, func(context.Context, *eventbus.Delivery) error { return buslaw.ErrBroken })
	e.PublishEvents(buslaw.Events(200)...)
	buslaw.Wait(e, done, "the breaker has opened three times")
	mu.Lock()
	defer mu.Unlock()
	for i, o := range opened[:opens-1] {
		// On a busy machine the subscription may miss a whole pause of the breaker.
		once := opened[i+1].until.Sub(o.until) < 2*pause
		if o.received < 1 || once && o.received > trials {
			e.Failf("got %d events after pause %d, want 1 to %d", o.received, i+1, trials)
		}
	}
}

// An opening is one change of the breaker to its open state.
type opening struct {
	until    time.Time
	received int // number of events received from this opening until the next one
}

// adapts tests law B.R05, about an adaptive limiter.
func adapts(e *buslaw.Env) {
	e.Start()
	const slots = 6
	l := limiter.NewAdaptive(1, slots)
	var failing, grown, shrunk atomic.Bool
	var failures atomic.Int64
	most := newGauge(nil)
	e.Member("g", eventbus.SubscribeOptions{
		Concurrency: 10, Limiter: l, Retry: eventbus.Retry{MaxAttempts: -1, Initial: time.Millisecond, Max: time.Millisecond},
	}, most.handler(func(context.Context, *eventbus.Delivery) error {
		time.Sleep(law.Tick)
		if l.State().Limit > 1 {
			grown.Store(true)
		}
		if !grown.Load() || !failing.Load() || failures.Add(1) > 500 { // after 500 failures the runs succeed, so that the law can end and fail
			return nil
		}
		if s := l.State(); s.Limit == 1 && s.Gradient == 0.5 {
			shrunk.Store(true)
			failing.Store(false)
			return nil
		}
		return buslaw.ErrBroken
	}))
	e.PublishEvents(buslaw.Events(60)...)
	e.AwaitDone(60, "g")
	failing.Store(true)
	e.PublishEvents(buslaw.Events(80)[60:]...)
	e.AwaitDone(80, "g")
	if !grown.Load() || !shrunk.Load() {
		e.Failf("the limit has grown: %v, and shrunk: %v, want both; now %+v", grown.Load(), shrunk.Load(), l.State())
	}
	if n := most.load(); n > slots {
		e.Failf("%d events ran at once, want %d at most", n, slots)
	}
}

// drops tests a policy that drops events. Eight calls of Publish fill the bus, and four
// more follow. newest reports whether the policy drops the last of the twelve calls.
func drops(e *buslaw.Env, policy eventbus.WhenFull, newest bool) {
	stalled := &stalling{release: make(chan struct{})}
	e.Open(eventbus.Options{MaxPending: 8, WhenFull: policy}, func(b backend.Backend) backend.Backend {
		stalled.Backend = b
		return &oneSlot{stalled}
	})
	e.Cleanup(stalled.end)
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		id := fmt.Sprint(i)
		wg.Go(func() { errs[i] = e.Publish(e.Context(), &eventbus.Event{ID: id}) })
		switch i {
		case 0:
			stalled.waitFor(id, e.Soon())
		case 10, 11:
			awaitDropped(e, i-7)
		}
	}
	stalled.end()
	wg.Wait()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(8, "g")
	e.Quiet(e.Lease / 4)
	dropped := 0
	for i, err := range errs {
		handled := slices.ContainsFunc(e.Recorder.All("g"), func(h buslaw.HandlerRun) bool { return h.Delivery.ID == fmt.Sprint(i) })
		if errors.Is(err, eventbus.ErrDropped) {
			dropped++
			if handled || errors.Is(err, eventbus.ErrUnknownOutcome) {
				e.Failf("event %d: got error %v, stored: %v; want a dropped event certainly not stored", i, err, handled)
			}
		} else if err != nil || !handled {
			e.Failf("event %d: got error %v, stored: %v; want it stored or dropped", i, err, handled)
		}
	}
	if dropped != 4 || errors.Is(errs[0], eventbus.ErrDropped) {
		e.Failf("got errors %v, want 4 calls dropped, and not the first, which was under way", errs)
	}
	if lost := errors.Is(errs[11], eventbus.ErrDropped); lost != newest {
		e.Failf("the newest call: dropped: %v, want %v", lost, newest)
	}
}

// awaitDropped waits until the observer has received n dropped events.
func awaitDropped(e *buslaw.Env, n int) {
	e.Helper()
	e.Await(fmt.Sprintf("the observer has received %d dropped events", n), func(r *buslaw.Recorder) bool {
		dropped := 0
		for _, d := range buslaw.Observed[observer.Dropped](r) {
			dropped += d.Events
		}
		return dropped >= n
	})
}

// leavesHandlers tests law B.R08, about the handlers of redelivered events.
func leavesHandlers(e *buslaw.Env) {
	e.Start()
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	e.Cleanup(end)
	most := newGauge(func(d *eventbus.Delivery) bool { return d.Attempt > 1 })
	e.Member("g", eventbus.SubscribeOptions{
		Concurrency: 4, MaxRedelivered: 1, Retry: eventbus.Retry{Initial: time.Millisecond, Max: time.Millisecond},
	}, most.handler(func(_ context.Context, d *eventbus.Delivery) error {
		switch {
		case d.Type == "fresh":
			return nil
		case d.Attempt == 1:
			return buslaw.ErrBroken
		case d.Attempt > 2:
			return errors.New("an attempt was spent")
		case d.ID == "00000":
			<-release
		}
		return nil
	}))
	old := buslaw.Events(5)
	e.PublishEvents(old[0])
	e.AwaitRuns(2, "g") // the second run waits for release
	e.PublishEvents(old[1:]...)
	e.AwaitRuns(6, "g")
	fresh := buslaw.Events(15)[5:]
	for _, ev := range fresh {
		ev.Type = "fresh"
	}
	e.PublishEvents(fresh...)
	e.AwaitDone(10, "g")
	time.Sleep(e.Lease / 8) // by now the retries are due
	if done := e.Recorder.All("g"); len(done) != 16 {
		e.Failf("got %d runs while one redelivered event runs, want 16: 10 of fresh events and 5 first attempts besides", len(done))
	}
	end()
	e.AwaitDone(15, "g")
	if n := most.load(); n != 1 {
		e.Failf("%d redelivered events ran at once, want 1", n)
	}
}

// A gauge counts the runs of handlers that have begun and not returned, and keeps the
// highest count.
type gauge struct {
	counts    func(*eventbus.Delivery) bool // selects the runs to count; nil: all runs
	now, most atomic.Int64
}

// newGauge returns a gauge of the runs for which counts returns true.
func newGauge(counts func(*eventbus.Delivery) bool) *gauge { return &gauge{counts: counts} }

func (g *gauge) load() int64 { return g.most.Load() }

// handler wraps h so that g counts its runs.
func (g *gauge) handler(h eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		if g.counts == nil || g.counts(d) {
			n := g.now.Add(1)
			defer g.now.Add(-1)
			for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
			}
		}
		return h(ctx, d)
	}
}

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
	shared, alone := &byteCounter{Limiter: limiter.MaxBytes(bound)}, &byteCounter{Limiter: limiter.MaxInFlight(1000)}
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
	for _, s := range []*byteCounter{shared, alone} {
		if most := s.load(); most > bound+largest || most < bound/2 {
			e.Failf("%d bytes were held, want at least %d, and at most %d and one event of %d", most, bound/2, bound, largest)
		}
	}
}

// A byteCounter is a limiter that records how many bytes are held.
type byteCounter struct {
	limiter.Limiter
	mu         sync.Mutex
	held, most int64
}

func (s *byteCounter) Fill(g limiter.Grant, n int, bytes int64) {
	s.mu.Lock()
	s.held += bytes
	s.most = max(s.most, s.held)
	s.mu.Unlock()
	s.Limiter.Fill(g, n, bytes)
}

func (s *byteCounter) Release(r limiter.Released) {
	s.mu.Lock()
	s.held -= r.Bytes
	s.mu.Unlock()
	s.Limiter.Release(r)
}

// load returns the most bytes that were held at one time.
func (s *byteCounter) load() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}
