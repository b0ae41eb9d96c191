package bus

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/service"
)

// serviceLaws are about the counts of runs, and about package service, which adds them up.
var serviceLaws = []law.Law{
	{
		ID: "B.V01", Name: "counts-apart", Promise: "Counts distinguishes panics, timeouts and snoozes from other failures, and counts each run once",
		Needs: []law.Need{law.NeedDelayer}, Uncounted: true,
		Engine: true, Faults: []string{"bus-forgives-failures", "bus-retries-late", "bus-runs-twice"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			o := eventbus.SubscribeOptions{Concurrency: 8, Timeout: e.Lease / 2, Order: eventbus.Unordered}
			s := e.Member("g", o, endsByID(e))
			e.PublishEvents(withIDs("ok", "error", "panic", "late", "snooze")...)
			e.AwaitDone(5, "g")
			c := s.Counts()
			if c.Failures != 3 || c.Panics != 1 || c.Timeouts != 1 || c.Snoozes != 1 {
				e.Failf("got %d failures, %d panics, %d timeouts and %d snoozes, want 3, 1, 1 and 1", c.Failures, c.Panics, c.Timeouts, c.Snoozes)
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.V02", Name: "outcome-of-a-timeout", Promise: "a service's outcome is accurate after a drain that timed out: it has the runs so far and the events that are left",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-never-closes"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			e.Cleanup(free)
			began := make(chan struct{}, 8)
			s := newService(e)
			register(e, s, "panics", func(context.Context, *eventbus.Delivery) error {
				began <- struct{}{}
				panic("boom")
			})
			register(e, s, "polite", func(ctx context.Context, _ *eventbus.Delivery) error {
				began <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			register(e, s, "stuck", func(context.Context, *eventbus.Delivery) error {
				began <- struct{}{}
				<-release
				return nil
			})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			ctx, stop := context.WithCancel(e.Context())
			defer stop()
			ended := runService(e, s, ctx, e.Lease)
			for range 3 {
				buslaw.Wait(e, began, "three handlers have begun")
			}
			e.Await("the panic is over", func(r *buslaw.Recorder) bool { return r.Ended("panics") > 0 })
			start := time.Now()
			stop()
			o := buslaw.Wait(e, ended, "the service has ended")
			if took := time.Since(start); took > e.Lease+2*time.Second+e.Soon()/2 {
				e.Failf("returned after %v, want two seconds after %v", took, e.Lease)
			}
			if !o.TimedOut || o.Left != 1 || o.ExitCode() != service.ExitTimedOut {
				e.Failf("got timed out %v, %d events left, exit code %d, want true, 1 and %d", o.TimedOut, o.Left, o.ExitCode(), service.ExitTimedOut)
			}
			if o.Panics < 1 || o.Panics != o.Groups["panics"].Panics {
				e.Failf("got %d panics, want those of the group panics, %d, and at least one", o.Panics, o.Groups["panics"].Panics)
			}
			free()
			e.Is("Publish after Run", e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{}), eventbus.ErrClosed)
			if later := s.Outcome(); later.Failures != o.Failures || later.Left != o.Left {
				e.Failf("the outcome was %v, and is %v now", o, later)
			}
		}),
	},
	{
		ID: "B.V03", Name: "outcome-counts-once", Promise: "a service's outcome counts each failed run once, including those of groups that were stopped",
		Needs: []law.Need{law.NeedDelayer}, Engine: true, Faults: []string{"bus-runs-twice", "bus-forgives-failures", "bus-retries-late"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := newService(e)
			register(e, s, "stays", endsByID(e))
			register(e, s, "stops", endsByID(e))
			ctx, stop := context.WithCancel(e.Context())
			defer stop()
			ended := runService(e, s, ctx, e.Patience())
			e.PublishEvents(withIDs("error", "panic", "1")...)
			e.AwaitDone(6, "stays", "stops")
			for range 2 {
				e.Must(s.Stop(e.Context(), "stops"))
				register(e, s, "stops", buslaw.Succeed)
			}
			e.PublishEvents(withIDs("2")...)
			e.AwaitDone(8, "stays", "stops")
			stop()
			o := buslaw.Wait(e, ended, "the service has ended")
			if o.Failures != 4 || o.Panics != 2 || o.Groups["stops"].Failures != 2 || o.Left != 0 {
				e.Failf("got %v, want 4 failures with 2 panics, half of them of the group stops", o)
			}
			failed := int64(0)
			for _, h := range e.Recorder.All("stays", "stops") {
				if h.Err != nil {
					failed++
				}
			}
			if failed != o.Failures {
				e.Failf("got %d failures, and %d runs have failed", o.Failures, failed)
			}
		}),
	},
	{
		ID: "B.V04", Name: "registered", Promise: "a group gets the events published after its registration, even if it starts later",
		Faults: []string{"bus-keeps-newcomers-waiting"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.PublishEvents(withIDs("before")...)
			s := newService(e)
			register(e, s, "g", buslaw.Succeed)
			register(e, s, "h", buslaw.Succeed)
			e.PublishEvents(withIDs("1", "2", "3")...)
			time.Sleep(e.Lease / 4)
			if n := e.Recorder.Count(); n != 0 {
				e.Failf("got %d runs before the start, want none", n)
			}
			e.Must(s.Start(e.Context()))
			e.AwaitDone(6, "g", "h")
			e.Settled("g", "h")
			for _, h := range e.Recorder.All() {
				if h.Delivery.ID == "before" {
					e.Failf("%s got an event from before its registration", h.Name)
				}
			}
		}),
	},
	{
		ID: "B.V05", Name: "second-registration", Promise: "registering a name twice, or a topic and group twice, is refused; with AllowDuplicate the two share the events",
		Faults: []string{"group-per-member"},
		Test:   buslaw.On(secondRegistration),
	},
	{
		ID: "B.V06", Name: "one-group-stops", Promise: "stopping one group waits for its runs and leaves the others alone; if the group is registered again with another handler, it gets the events published since",
		Needs: []law.Need{law.NeedDelayer}, Faults: []string{"group-per-member"}, Uncounted: true,
		Test: buslaw.On(oneGroupStops),
	},
	{
		ID: "B.V07", Name: "registered-late", Promise: "a group that is registered while the service is running starts at once, gets the events published since, and is part of the outcome",
		Faults: []string{"bus-keeps-newcomers-waiting"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := newService(e)
			register(e, s, "early", buslaw.Succeed)
			ctx, stop := context.WithCancel(e.Context())
			defer stop()
			ended := runService(e, s, ctx, e.Patience())
			e.PublishEvents(withIDs("1")...)
			e.AwaitDone(1, "early")
			register(e, s, "late", func(context.Context, *eventbus.Delivery) error { return eventbus.Permanent(buslaw.ErrBroken) })
			e.PublishEvents(withIDs("2", "3")...)
			e.AwaitDone(3, "early")
			e.Await("the late group has run", func(r *buslaw.Recorder) bool { return r.Ended("late") == 2 })
			for _, h := range e.Recorder.All("late") {
				if h.Delivery.ID == "1" {
					e.Failf("the late group got an event from before its registration")
				}
			}
			e.Settled("early", "late")
			stop()
			o := buslaw.Wait(e, ended, "the service has ended")
			if o.Failures != 2 || o.Groups["late"].Failures != 2 || o.Left != 0 {
				e.Failf("got %v, want the 2 failures of the late group", o)
			}
		}),
	},
}

func secondRegistration(e *buslaw.Env) {
	e.Start()
	s := newService(e)
	register(e, s, "one", buslaw.Succeed)
	o := e.Options(eventbus.SubscribeOptions{Group: "one", Start: eventbus.StartLatest, Concurrency: 4, Order: eventbus.Unordered})
	g := service.Group{Topic: law.Topic, Options: o, Handler: e.Recorder.Handler("two", "one", buslaw.Succeed)}
	list := g
	list.Topic, list.Options.Topics = "", []string{"another", law.Topic}
	for _, again := range []struct {
		name  string
		group service.Group
	}{{"one", g}, {"two", g}, {"two", list}} {
		err := s.Register(e.Context(), again.name, again.group)
		if _, ok := errors.AsType[*eventbus.FieldError](err); !ok {
			e.Failf("Register of the group one again, as %s: got error %v, want a *FieldError", again.name, err)
		}
	}
	g.AllowDuplicate = true
	e.Must(s.Register(e.Context(), "two", g))
	e.Must(s.Start(e.Context()))
	e.PublishEvents(buslaw.Events(40)...)
	e.AwaitDone(40, "one", "two")
	e.Settled("one")
	if n := e.Recorder.Count(); n != 40 {
		e.Failf("got %d runs of 40 events, want each once", n)
	}
}

func oneGroupStops(e *buslaw.Env) {
	e.Start()
	s := newService(e)
	gate := make(chan struct{})
	free := sync.OnceFunc(func() { close(gate) })
	e.Cleanup(free)
	register(e, s, "stays", buslaw.Succeed)
	register(e, s, "stops", func(context.Context, *eventbus.Delivery) error {
		<-gate
		return nil
	})
	e.Must(s.Start(e.Context()))
	e.PublishEvents(withIDs("1")...)
	e.AwaitRuns(1, "stops")
	stopped := make(chan error, 1)
	e.Go(func() { stopped <- s.Stop(e.Context(), "stops") })
	time.Sleep(e.Lease / 4)
	e.PublishEvents(withIDs("2")...)
	e.AwaitDone(2, "stays")
	select {
	case err := <-stopped:
		e.Failf("Stop returned with error %v while a handler of the group ran", err)
	default:
	}
	free()
	e.Must(buslaw.Wait(e, stopped, "Stop has returned"))
	e.PublishEvents(withIDs("3")...)
	e.AwaitDone(3, "stays")
	e.Still(4, e.Soon()) // the group that stopped has run one event
	o := e.Options(eventbus.SubscribeOptions{Group: "stops", Start: eventbus.StartLatest})
	e.Must(s.Register(e.Context(), "stops", service.Group{Topic: law.Topic, Options: o, Handler: e.Recorder.Handler("restarted", "stops", buslaw.Succeed)}))
	e.AwaitDone(2, "restarted")
	e.Settled("stays", "stops")
	if n := e.Recorder.Count(); n != 6 {
		e.Failf("got %d runs, want 3 of the group that stays, and 1 and 2 of the other one", n)
	}
}

// withIDs returns events with these IDs.
func withIDs(ids ...string) []*eventbus.Event {
	es := make([]*eventbus.Event, len(ids))
	for i, id := range ids {
		es[i] = &eventbus.Event{ID: id}
	}
	return es
}

// endsByID returns a handler whose first run of an event ends as its ID says. The next run succeeds.
func endsByID(e *buslaw.Env) eventbus.Handler {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(ctx context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		again := seen[d.ID]
		seen[d.ID] = true
		mu.Unlock()
		if again {
			return nil
		}
		switch d.ID {
		case "error":
			return buslaw.ErrBroken
		case "panic":
			panic("boom")
		case "late":
			<-ctx.Done()
			return context.Cause(ctx)
		case "snooze":
			return eventbus.Snooze(e.Lease / 4)
		}
		return nil
	}
}

func newService(e *buslaw.Env) *service.Service {
	e.Helper()
	s, err := service.New(e.Bus, service.Options{Signals: []os.Signal{}})
	e.Must(err)
	return s
}

// register registers a group of [law.Topic] that begins with the next event. The Recorder keeps its
// runs under its name.
func register(e *buslaw.Env, s *service.Service, name string, h eventbus.Handler) {
	e.Helper()
	o := e.Options(eventbus.SubscribeOptions{Group: name, Start: eventbus.StartLatest, Concurrency: 4, Order: eventbus.Unordered})
	e.Must(s.Register(e.Context(), name, service.Group{Topic: law.Topic, Options: o, Handler: e.Recorder.Handler(name, name, h)}))
}

// runService calls Run, and returns a channel that gets its outcome.
func runService(e *buslaw.Env, s *service.Service, ctx context.Context, drain time.Duration) <-chan service.Outcome {
	ended := make(chan service.Outcome, 1)
	e.Go(func() { ended <- s.Run(ctx, drain) })
	return ended
}
