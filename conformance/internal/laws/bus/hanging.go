package bus

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/seed41896749/eventbus/observer"
)

// stuckLaws are about handlers that ignore their contexts and never return.
var stuckLaws = []law.Law{
	{
		ID: "B.T14", Name: "stuck-handler", Promise: "a handler that ignores its context counts as failed seconds after its timeout: its event is redelivered, the observer is notified, and the events behind it are handled",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			e.Cleanup(free)
			s := stuckMember(e, eventbus.SubscribeOptions{}, release)
			published := time.Now()
			e.PublishEvents(&eventbus.Event{ID: "stuck", Key: "k"})
			e.AwaitRuns(1, "g")
			e.PublishEvents(append(buslaw.Events(10), &eventbus.Event{ID: "behind", Key: "k"})...)
			e.AwaitDone(12, "g")
			e.By(published, stuckTimeout(e)+10*time.Second, "the events behind were handled")
			if c := s.Counts(); c.Failures != 1 || c.Retried != 1 {
				e.Failf("got counts %+v, want one failed run, which is retried", c)
			}
			retried := buslaw.AwaitObserved[observer.Retried](e, 1)
			if _, ok := errors.AsType[*observer.TimeoutError](retried[0].Err); !ok || retried[0].ID != "stuck" {
				e.Failf("got %+v, want a retry of the stuck event with a TimeoutError", retried[0])
			}
			buslaw.AwaitObserved[observer.Stuck](e, 1)
			runs := e.Recorder.Count()
			free() // the handler returns at last, which changes nothing
			e.Still(runs, e.Soon())
			e.Settled("g")
		}),
	},
	{
		ID: "B.T15", Name: "stuck-at-last", Promise: "if a handler ignores its context on the last attempt, its event is dead-lettered as timed out while the handler is still running",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			release := make(chan struct{})
			e.Cleanup(func() { close(release) })
			stuckMember(e, eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 1}}, release)
			e.PublishEvents(&eventbus.Event{ID: "stuck"})
			e.AwaitDone(1, "dead")
			why, _ := eventbus.DeadLetterOf(&e.Recorder.All("dead")[0].Delivery.Event)
			if why.Reason != eventbus.ReasonExhausted || why.ErrorClass != "timeout" || why.Attempts != 1 {
				e.Failf("got a dead letter with %+v, want reason %q, class timeout and one attempt", why, eventbus.ReasonExhausted)
			}
			e.PublishEvents(&eventbus.Event{ID: "next"})
			e.AwaitDone(1, "g")
		}),
	},
	{
		ID: "B.T16", Name: "hangs-at-each-attempt", Promise: "an event whose handler never returns on any attempt is dead-lettered after the last one; beside three such runs, one handler handles all other events",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			release := make(chan struct{})
			e.Cleanup(func() { close(release) })
			o := eventbus.SubscribeOptions{Timeout: stuckTimeout(e), Retry: eventbus.Retry{MaxAttempts: 5, Initial: 10 * time.Millisecond}}
			s := e.Member("g", o, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "stuck" {
					<-release
				}
				return nil
			})
			e.PublishEvents(append([]*eventbus.Event{{ID: "stuck"}}, buslaw.Events(10)...)...)
			e.AwaitDone(1, "dead")
			why, _ := eventbus.DeadLetterOf(&e.Recorder.All("dead")[0].Delivery.Event)
			if why.Reason != eventbus.ReasonExhausted || why.ErrorClass != "timeout" || why.Attempts != 5 {
				e.Failf("got a dead letter with %+v, want reason %q, class timeout and five attempts", why, eventbus.ReasonExhausted)
			}
			e.PublishEvents(&eventbus.Event{ID: "next"})
			e.AwaitDone(11, "g")
			if c := s.Counts(); c.Failures != 3 {
				e.Failf("got counts %+v, want three failed runs", c)
			}
		}),
	},
	{
		ID: "B.B10", Name: "batch-stuck", Promise: "if a batch handler ignores its context, the call counts as failed seconds after its timeout: its events are redelivered, and other events are handled",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			release := make(chan struct{})
			e.Cleanup(sync.OnceFunc(func() { close(release) }))
			o := eventbus.SubscribeOptions{Timeout: stuckTimeout(e)}
			s := e.BatchMember("g", o, eventbus.Batch{MaxSize: 4}, func(_ context.Context, ds []*eventbus.Delivery) []error {
				if slices.ContainsFunc(ds, func(d *eventbus.Delivery) bool { return d.ID == "00000" && d.Attempt <= 1 }) {
					<-release
				}
				return nil
			})
			published := time.Now()
			e.PublishEvents(buslaw.Events(20)...)
			for _, ev := range buslaw.Events(20) {
				e.Await("event "+ev.ID+" is handled", func(r *buslaw.Recorder) bool { return r.Handled["g "+ev.ID] })
			}
			e.By(published, stuckTimeout(e)+10*time.Second, "all events were handled")
			if c := s.Counts(); c.Failures < 1 || c.Failures > 4 || c.Failures != c.Retried {
				e.Failf("got counts %+v, want the failures of one call of at most four events, and as many retries", c)
			}
		}),
	},
}

// stuckTimeout is the timeout of members whose handlers hang.
func stuckTimeout(e *buslaw.Env) time.Duration { return e.Lease / 4 }

// stuckMember adds the member "g" with one handler. The first run of the event "stuck" waits
// for release, and ignores its context.
func stuckMember(e *buslaw.Env, o eventbus.SubscribeOptions, release <-chan struct{}) *eventbus.Subscription {
	e.Helper()
	o.Timeout = stuckTimeout(e)
	return e.Member("g", o, func(_ context.Context, d *eventbus.Delivery) error {
		if d.ID == "stuck" && d.Attempt <= 1 {
			<-release
		}
		return nil
	})
}

// hangingLaws are about calls to a backend or a limiter that ignore their contexts and never
// return.
var hangingLaws = []law.Law{
	{
		ID: "B.S17", Name: "drain-bounded", Promise: "a Shutdown returns within two seconds after its context ends, whichever backend or limiter call ignores its own context",
		Engine: true, Faults: []string{"bus-ignores-contexts"}, Again: true,
		Test: buslaw.On(drainBounded),
	},
}

// drainBounded tests law B.S17. Each round has a bus and a topic of its own, and one call
// that hangs. All rounds run at the same time.
func drainBounded(e *buslaw.Env) {
	const bound = time.Second
	calls := []string{"Receive", "Ack", "Extend", "Delay", "Close of a source", "Close of the backend", "Acquire"}
	release := make(chan struct{})
	var hung atomic.Int64
	took := map[string]chan time.Duration{}
	for _, call := range calls {
		way := &hanging{call: call, release: release, hung: &hung}
		o := eventbus.SubscribeOptions{Group: "g", Limiter: way.limiter()}
		bus := e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
			way.Backend = b
			return way
		})
		topic := "drain-" + way.short()
		ran := make(chan struct{}, 100)
		e.MemberOf(topic, call, o, way.handler(e, ran))
		e.Must(bus.Publish(e.Context(), topic, &eventbus.Event{ID: "x"}))
		ended := make(chan time.Duration, 1)
		took[call] = ended
		e.Go(func() {
			select {
			case <-ran:
			case <-time.After(e.Lease):
			}
			time.Sleep(e.Lease / 2) // the call begins
			ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), bound)
			defer cancel()
			start := time.Now()
			_ = bus.Shutdown(ctx)
			ended <- time.Since(start)
		})
	}
	e.Cleanup(func() {
		for close(release); hung.Load() > 0; {
			time.Sleep(law.Tick)
		}
	})
	limit := bound + 2*time.Second + law.Hitch + e.Grace
	var late []string
	patience := time.After(2*e.Lease + e.Patience())
	for _, call := range calls {
		select {
		case d := <-took[call]:
			if d > limit {
				late = append(late, fmt.Sprintf("%s: after %v", call, d.Round(time.Millisecond)))
			}
		case <-patience:
			late = append(late, call+": not yet")
			patience = time.After(0)
		}
	}
	if len(late) > 0 {
		e.Failf("Shutdown returned late for calls that hang, %v; want by %v, and at most two seconds later", late, bound)
	}
}

// hanging is a backend on which one kind of call hangs until release is closed, whatever its
// context. The first two calls of Receive and Acquire do not hang, so that an event runs.
type hanging struct {
	backend.Backend
	call    string
	release chan struct{}
	calls   atomic.Int64
	hung    *atomic.Int64 // the calls of all rounds that hang, or have hung and not returned
}

func (h *hanging) Unwrap() backend.Backend { return h.Backend }

func (h *hanging) short() string { return strings.ToLower(strings.ReplaceAll(h.call, " ", "-")) }

// at hangs if call is the call that hangs. The caller calls done when it returns.
func (h *hanging) at(call string) (done func()) {
	if h.call != call {
		return func() {}
	}
	if first := call == "Receive" || call == "Acquire"; first && h.calls.Add(1) <= 2 {
		return func() {}
	}
	h.hung.Add(1)
	<-h.release
	return func() { h.hung.Add(-1) }
}

// handler returns a handler that leads to the call that hangs. It sends to ran when it begins.
func (h *hanging) handler(e *buslaw.Env, ran chan<- struct{}) eventbus.Handler {
	return func(context.Context, *eventbus.Delivery) error {
		ran <- struct{}{}
		switch h.call {
		case "Delay":
			return buslaw.ErrBroken
		case "Extend":
			awaitEither(h.release, 2*e.Lease) // long enough for an extension
		}
		return nil
	}
}

// Close does not close the backend under test, because other buses use it.
func (h *hanging) Close() error {
	defer h.at("Close of the backend")()
	return nil
}

func (h *hanging) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := h.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &hangingSource{src, h}, nil
}

type hangingSource struct {
	backend.Source
	way *hanging
}

func (h *hangingSource) Unwrap() backend.Source { return h.Source }

func (h *hangingSource) Receive(ctx context.Context, max int, bytes int64) ([]backend.Delivery, error) {
	defer h.way.at("Receive")()
	return h.Source.Receive(ctx, max, bytes)
}

func (h *hangingSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	defer h.way.at("Ack")()
	return h.Source.Ack(ctx, ds)
}

func (h *hangingSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	defer h.way.at("Extend")()
	v, ok := backend.As[backend.Extender](h.Source)
	if !ok {
		return backend.ErrUnavailable
	}
	return v.Extend(ctx, ds)
}

func (h *hangingSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	defer h.way.at("Delay")()
	v, ok := backend.As[backend.Delayer](h.Source)
	if !ok {
		return backend.ErrUnavailable
	}
	return v.Delay(ctx, ds)
}

func (h *hangingSource) Close() error {
	defer h.way.at("Close of a source")()
	return h.Source.Close()
}

// limiter returns the limiter of the round in which Acquire hangs. In the other rounds it
// returns one that grants everything.
func (h *hanging) limiter() limiter.Limiter { return &hangingLimiter{limiter.MaxInFlight(100), h} }

type hangingLimiter struct {
	limiter.Limiter
	way *hanging
}

func (h *hangingLimiter) Acquire(ctx context.Context, max int) (limiter.Grant, error) {
	defer h.way.at("Acquire")()
	return h.Limiter.Acquire(ctx, max)
}

// awaitEither waits until c is closed, for d at most.
func awaitEither(c <-chan struct{}, d time.Duration) {
	select {
	case <-c:
	case <-time.After(d):
	}
}
