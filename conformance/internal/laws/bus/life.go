package bus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// lifeLaws are about the life of subscriptions, and handlers that panic or call Goexit.
var lifeLaws = []law.Law{
	{
		ID: "B.S01", Name: "drain-clean", Promise: "a drain lets handlers finish, settles their events, and gives back those that have not started: another member has them within a second",
		Needs: []law.Need{law.NeedDelayer}, Faults: []string{"delay-ignored"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s, stop := busyMember(e)
			e.PublishEvents(buslaw.Events(40)...)
			e.AwaitRuns(22, "busy") // 20 runs of busyMember, and two that wait now
			e.Member("other", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.Cleanup(stop)
			time.AfterFunc(e.Lease/4, stop)
			start := time.Now()
			e.Must(s.Drain(e.Context()))
			e.AwaitDone(38, "other")
			for _, h := range e.Recorder.All("other") {
				if took := h.Began.Sub(start); took > e.Lease/4+time.Second+law.Hitch {
					e.Failf("%s came to the other member after %v, want within a second", h.Delivery.ID, took)
				}
			}
			e.Settled("g")
			onceAcross(e)
		}),
	},
	{
		ID: "B.S02", Name: "drain-deadline", Promise: "a Shutdown whose context ends cancels handlers with cause ErrShutdown, returns within a second, and reports what it left behind",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-contexts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			release := make(chan struct{})
			e.Cleanup(func() { close(release) })
			e.Member("polite", eventbus.SubscribeOptions{Group: "polite"}, func(ctx context.Context, _ *eventbus.Delivery) error {
				select {
				case <-ctx.Done():
				case <-release:
				}
				return context.Cause(ctx)
			})
			e.Member("stuck", eventbus.SubscribeOptions{Group: "stuck"}, func(context.Context, *eventbus.Delivery) error {
				<-release
				return nil
			})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.Await("both run", func(r *buslaw.Recorder) bool { return r.Started["polite"]+r.Started["stuck"] == 2 })
			ctx, cancel := context.WithTimeout(e.Context(), e.Lease)
			defer cancel()
			start := time.Now()
			err := e.Bus.Shutdown(ctx)
			if took := time.Since(start); took > e.Lease+time.Second+e.Soon()/2 || took < e.Lease {
				e.Failf("returned after %v, want a second after %v", took, e.Lease)
			}
			drain, ok := errors.AsType[*eventbus.DrainError](err)
			if !ok || len(drain.Abandoned) != 1 || drain.Abandoned[0].Group != "stuck" || drain.Abandoned[0].Handlers != 1 {
				e.Failf("got error %v, want a DrainError of one handler of the group stuck", err)
			}
			if cause := e.Recorder.All("polite")[0].Cause; !errors.Is(cause, eventbus.ErrShutdown) {
				e.Failf("got cause %v, want ErrShutdown", cause)
			}
		}),
	},
	{
		ID: "B.S03", Name: "drain-no-attempt", Promise: "events that a drain gives back before they start have used no attempt",
		Needs: []law.Need{law.NeedDelayer, law.NeedRefund}, Faults: []string{"delay-inverts-refunds"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s, stop := busyMember(e)
			e.PublishEvents(buslaw.Events(40)...)
			e.AwaitRuns(22, "busy")
			e.Cleanup(stop)
			time.AfterFunc(e.Lease/4, stop)
			e.Must(s.Drain(e.Context()))
			e.Member("other", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.AwaitDone(38, "other")
			for _, h := range e.Recorder.All("other") {
				if h.Delivery.Attempt != 1 {
					e.Failf("%s: got attempt %d, want 1", h.Delivery.ID, h.Delivery.Attempt)
				}
			}
		}),
	},
	{
		ID: "B.S04", Name: "close-idempotent", Promise: "Shutdown may be called repeatedly and concurrently; after it the bus is closed",
		Engine: true, Faults: []string{"bus-never-closes"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(50)...)
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if err := e.Bus.Shutdown(e.Context()); err != nil {
						e.Errorf("Shutdown: got error %v, want none", err)
					}
				})
			}
			wg.Wait()
			e.Is("Publish after Shutdown", e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{}), eventbus.ErrClosed)
			_, err := e.Bus.Subscribe(e.Context(), law.Topic, e.Options(eventbus.SubscribeOptions{}), buslaw.Succeed)
			e.Is("Subscribe after Shutdown", err, eventbus.ErrClosed)
		}),
	},
	{
		ID: "B.S05", Name: "come-and-go", Promise: "members that join and leave many times lose nothing and leave nothing behind",
		Faults: []string{"bus-loses-one-in-ten"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for i := range 30 {
				s := e.Member("g", eventbus.SubscribeOptions{Concurrency: 2}, buslaw.Succeed)
				e.PublishEvents(&eventbus.Event{})
				if i%3 == 0 {
					e.AwaitDone(i, "g")
				}
				e.Must(s.Drain(e.Context()))
			}
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.AwaitDone(30, "g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.S06", Name: "cancel-fast", Promise: "an idle subscription drains within a second",
		Faults: []string{"receive-deaf", "member-reads-on"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			time.Sleep(e.Lease / 2)
			start := time.Now()
			e.Must(s.Drain(e.Context()))
			if took := time.Since(start); took > time.Second+law.Hitch {
				e.Failf("took %v, want a second at most", took)
			}
		}),
	},
	{
		ID: "B.S07", Name: "panic", Promise: "a handler that panics has failed, with the value and stack recorded; the process and the other handlers continue",
		Engine: true, Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2}}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00001" {
					panic("boom")
				}
				return nil
			})
			e.PublishEvents(buslaw.Events(3)...)
			e.AwaitDone(3, "g", "dead")
			h := e.Recorder.All("dead")[0].Delivery.Headers
			if h.Get("eventbus-dead-error-class") != "panic" || !strings.Contains(h.Get("eventbus-dead-error"), "boom") || !strings.Contains(h.Get("eventbus-dead-stack"), "goroutine") {
				e.Failf("got headers %v, want class panic, the value and the stack", h)
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.S08", Name: "goexit", Promise: "a handler that ends its goroutine has failed, and its slot is reused",
		Engine: true, Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, exitOnce)
			e.PublishEvents(buslaw.Events(5)...)
			e.AwaitDone(5, "g")
			if n := len(e.Recorder.All("g")); n != 10 {
				e.Failf("got %d runs, want two of each of five", n)
			}
		}),
	},
	{
		ID: "B.S12", Name: "publish-while-draining", Promise: "a handler can publish until the last handler has returned",
		Engine: true, Faults: []string{"bus-closes-publishing-first"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var late error
			began := make(chan struct{})
			e.Member("g", eventbus.SubscribeOptions{}, func(ctx context.Context, _ *eventbus.Delivery) error {
				close(began)
				time.Sleep(e.Lease / 2)
				late = e.Bus.Publish(ctx, "other", &eventbus.Event{ID: "late"})
				return nil
			})
			e.PublishEvents(&eventbus.Event{})
			buslaw.Wait(e, began, "a handler has begun")
			e.End()
			e.Must(late)
		}),
	},
	{
		ID: "B.S13", Name: "pause", Promise: "a paused subscription takes no new events until it is resumed, but is ready all the same",
		Faults: []string{"member-reads-on"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(3)...)
			e.AwaitDone(3, "g")
			time.Sleep(e.Soon()) // time for the bus to call Receive, which then waits
			s.Pause()
			s.Pause()
			time.Sleep(e.Soon())
			received := s.Counts().Received
			e.PublishEvents(buslaw.Events(7)[3:]...)
			e.Still(3, e.Lease+e.Soon())
			if got := s.Counts().Received - received; got > 0 {
				e.Failf("a paused subscription received %d events", got)
			}
			s.Resume()
			e.AwaitDone(7, "g")
			buslaw.AwaitObserved[stateChanged](e, 2)
		}),
	},
	{
		ID: "B.S16", Name: "ready-while-draining", Promise: "while one subscription of a bus drains, the bus stays ready for the others",
		Faults: []string{"bus-never-ready"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			e.Cleanup(free)
			ends := e.Member("ends", eventbus.SubscribeOptions{Group: "ends"}, func(context.Context, *eventbus.Delivery) error {
				<-release
				return nil
			})
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(2)...)
			e.AwaitRuns(1, "ends")
			drained := make(chan error, 1)
			go func() { drained <- ends.Drain(e.Context()) }()
			e.Await("the subscription drains", func(*buslaw.Recorder) bool {
				state, _ := ends.State()
				return state == observer.Draining
			})
			e.Must(e.Bus.Ready(e.Context()))
			free()
			e.Must(<-drained)
			e.Must(e.Bus.Ready(e.Context()))
		}),
	},
	{
		ID: "B.S14", Name: "gone", Promise: "a subscription whose group is deleted attaches again, and reports it",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"member-gives-up"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(3)...)
			e.AwaitDone(3, "g")
			admin := e.Verbs()
			e.Must(admin.DeleteGroup(e.Context(), law.Topic, "g"))
			e.Await("it is running again", func(r *buslaw.Recorder) bool {
				cs := buslaw.Observed[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.PublishEvents(&eventbus.Event{ID: "new"})
			e.Await("the new event", func(r *buslaw.Recorder) bool {
				return slices.ContainsFunc(r.RunsOf("g"), func(h buslaw.HandlerRun) bool { return h.Delivery.ID == "new" })
			})
		}),
	},
}

// busyMember adds the member "busy" to the group g. Its first twenty runs are quick, so
// that the bus prefetches many events. Then two runs at a time wait until stop is called.
func busyMember(e *buslaw.Env) (s *eventbus.Subscription, stop func()) {
	e.Helper()
	slow := make(chan struct{})
	var quick atomic.Int64
	s = e.Member("busy", eventbus.SubscribeOptions{Concurrency: 2}, func(context.Context, *eventbus.Delivery) error {
		if quick.Add(1) > 20 {
			<-slow
		}
		return nil
	})
	warm := buslaw.Events(20)
	for i := range warm {
		warm[i].ID = "warm" + warm[i].ID
	}
	e.PublishEvents(warm...)
	e.AwaitDone(20, "busy")
	return s, sync.OnceFunc(func() { close(slow) })
}

// onceAcross expects that each event succeeded in one run at most, even if several members
// got it.
func onceAcross(e *buslaw.Env) {
	e.Helper()
	seen := map[string]string{}
	for _, h := range e.Recorder.All() {
		if by, ok := seen[h.Delivery.ID]; ok && h.Err == nil {
			e.Failf("%s was handled by %s and by %s", h.Delivery.ID, by, h.Name)
		}
		seen[h.Delivery.ID] = h.Name
	}
}

// handOverLaws are about programs that settle events themselves, and hand them over when a
// drain begins.
var handOverLaws = []law.Law{
	{
		ID: "B.A11", Name: "manual-hand-over", Promise: "a program that settles events itself is notified when a drain begins, and can give back the events that it holds: the drain then ends at once, and another member soon gets them",
		Needs: []law.Need{law.NeedDelayer, law.NeedExtender}, Faults: []string{"delay-ignored"}, Uncounted: true,
		Test: buslaw.On(handsOver),
	},
}

func handsOver(e *buslaw.Env) {
	e.Start()
	const n = 5
	held := make(chan *eventbus.ManualDelivery, n)
	s, err := e.Bus.SubscribeManual(e.Context(), law.Topic, e.Options(eventbus.SubscribeOptions{Timeout: -1}), func(_ context.Context, d *eventbus.ManualDelivery) error {
		e.Recorder.Begin("manual", d.Delivery)
		held <- d
		return nil
	})
	e.Must(err)
	drains, ok := any(s).(interface{ Draining() <-chan struct{} })
	if !ok {
		e.Failf("a Subscription does not report that a drain has begun")
	}
	e.PublishEvents(buslaw.Events(n)...)
	var ds []*eventbus.ManualDelivery
	for range n {
		ds = append(ds, buslaw.Wait(e, held, "the program is handed five events"))
	}
	select {
	case <-drains.Draining():
		e.Failf("the subscription says that it drains before a drain")
	case <-time.After(e.Lease / 20):
	}
	e.Go(func() {
		<-drains.Draining()
		for _, d := range ds {
			if err := d.Nack(e.Context(), eventbus.Snooze(0)); err != nil {
				e.Errorf("Nack during the drain: got error %v, want none", err)
			}
		}
	})
	start := time.Now()
	e.Must(s.Drain(e.Bounded()))
	e.By(start, 0, "the drain ended")
	e.Member("other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(n, "other")
	e.By(start, time.Second, "another member had handled the events")
	for _, h := range e.Recorder.All("other") {
		if e.Limits.Refund && h.Delivery.Attempt != 1 {
			e.Failf("%s: got attempt %d, want 1", h.Delivery.ID, h.Delivery.Attempt)
		}
	}
	e.Settled("g")
}
