package bus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// stuckLaws are about handlers that ignore their contexts and never return.
var stuckLaws = []law.Law{
	{
		ID: "B.T14", Name: "stuck-handler", Promise: "seconds after its timeout a handler that ignores its context has failed: its event is redelivered, the observer is told, and the events behind it are handled",
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
			retried := buslaw.AwaitTold[observer.Retried](e, 1)
			if _, ok := errors.AsType[*observer.TimeoutError](retried[0].Err); !ok || retried[0].ID != "stuck" {
				e.Failf("got %+v, want a retry of the stuck event with a TimeoutError", retried[0])
			}
			buslaw.AwaitTold[observer.Stuck](e, 1)
			runs := e.Recorder.Count()
			free() // the handler returns at last, which changes nothing
			e.Still(runs, e.Soon())
			e.Settled("g")
		}),
	},
	{
		ID: "B.T15", Name: "stuck-at-last", Promise: "the event of a handler that ignores its context at the last attempt is dead-lettered as timed out, while the handler still runs",
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
		ID: "B.T16", Name: "hangs-at-each-attempt", Promise: "an event whose handler never returns, at any attempt, is dead-lettered after its last one; beside three runs of it all other events are handled, by one handler",
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
		ID: "B.B10", Name: "batch-stuck", Promise: "seconds after its timeout a call of a batch handler that ignores its context has failed: its events are redelivered, and other events are handled",
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
