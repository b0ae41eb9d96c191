package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
)

// busLifeLaws are about the beginning and the end of subscriptions, and about
// handlers that end in odd ways.
var busLifeLaws = []law{
	{
		id: "B.S01", name: "drain-clean", promise: "a drain lets handlers finish, settles, and gives back what has not started: another member has it within a second",
		needs: []need{needDelayer}, saboteurs: []string{"bus-keeps-on-drain"},
		bus: func(e *busEnv) {
			e.start()
			s, stop := e.busyMember()
			e.publishEvents(events(40)...)
			e.awaitRuns(22, "busy") // 20 of a quick past, two that run now
			e.member("other", eventbus.SubscribeOptions{}, succeed)
			e.Cleanup(stop)
			time.AfterFunc(e.lease/4, stop)
			start := time.Now()
			e.must(s.Drain(e.Context()))
			e.awaitDone(38, "other")
			for _, h := range e.log.all("other") {
				if took := h.began.Sub(start); took > e.lease/4+time.Second+hitch {
					e.failf("%s came to the other member after %v, want within a second", h.delivery.ID, took)
				}
			}
			e.settled("g")
			e.onceAcross()
		},
	},
	{
		id: "B.S02", name: "drain-deadline", promise: "a Shutdown whose context ends cancels handlers with cause ErrShutdown, returns within a second, and says what it left behind",
		needs: []need{needExtender}, saboteurs: []string{"bus-hides-contexts", "bus-reports-nothing"},
		bus: func(e *busEnv) {
			e.start()
			release := make(chan struct{})
			e.Cleanup(func() { close(release) })
			e.member("polite", eventbus.SubscribeOptions{Group: "polite"}, func(ctx context.Context, _ *eventbus.Delivery) error {
				select {
				case <-ctx.Done():
				case <-release:
				}
				return context.Cause(ctx)
			})
			e.member("stuck", eventbus.SubscribeOptions{Group: "stuck"}, func(context.Context, *eventbus.Delivery) error {
				<-release
				return nil
			})
			e.publishEvents(&eventbus.Event{ID: "x"})
			e.await("both run", func(r *recorder) bool { return r.started["polite"]+r.started["stuck"] == 2 })
			ctx, cancel := context.WithTimeout(e.Context(), e.lease)
			defer cancel()
			start := time.Now()
			err := e.bus.Shutdown(ctx)
			if took := time.Since(start); took > e.lease+time.Second+e.soon()/2 || took < e.lease {
				e.failf("returned after %v, want a second after %v", took, e.lease)
			}
			drain, ok := errors.AsType[*eventbus.DrainError](err)
			if !ok || len(drain.Abandoned) != 1 || drain.Abandoned[0].Group != "stuck" || drain.Abandoned[0].Handlers != 1 {
				e.failf("got error %v, want a DrainError of one handler of the group stuck", err)
			}
			if cause := e.log.all("polite")[0].cause; !errors.Is(cause, eventbus.ErrShutdown) {
				e.failf("got cause %v, want ErrShutdown", cause)
			}
		},
	},
	{
		id: "B.S03", name: "drain-no-attempt", promise: "what a drain gives back unstarted has not spent an attempt",
		needs: []need{needDelayer, needRefund}, saboteurs: []string{"ignores-refunds"},
		bus: func(e *busEnv) {
			e.start()
			s, stop := e.busyMember()
			e.publishEvents(events(40)...)
			e.awaitRuns(22, "busy")
			e.Cleanup(stop)
			time.AfterFunc(e.lease/4, stop)
			e.must(s.Drain(e.Context()))
			e.member("other", eventbus.SubscribeOptions{}, succeed)
			e.awaitDone(38, "other")
			for _, h := range e.log.all("other") {
				if h.delivery.Attempt != 1 {
					e.failf("%s: got attempt %d, want 1", h.delivery.ID, h.delivery.Attempt)
				}
			}
		},
	},
	{
		id: "B.S04", name: "close-idempotent", promise: "Shutdown may be called often and at once; after it the bus is closed",
		saboteurs: []string{"bus-never-closes"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(events(50)...)
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if err := e.bus.Shutdown(e.Context()); err != nil {
						e.errorf("Shutdown: got error %v, want none", err)
					}
				})
			}
			wg.Wait()
			e.is("Publish after Shutdown", e.bus.Publish(e.Context(), topic, &eventbus.Event{}), eventbus.ErrClosed)
			_, err := e.bus.Subscribe(e.Context(), topic, e.options(eventbus.SubscribeOptions{}), succeed)
			e.is("Subscribe after Shutdown", err, eventbus.ErrClosed)
		},
	},
	{
		id: "B.S05", name: "come-and-go", promise: "members that come and go many times lose nothing and leave nothing behind",
		saboteurs: []string{"bus-loses-one-in-ten"},
		bus: func(e *busEnv) {
			e.start()
			for i := range 30 {
				s := e.member("g", eventbus.SubscribeOptions{Concurrency: 2}, succeed)
				e.publishEvents(&eventbus.Event{})
				if i%3 == 0 {
					e.awaitDone(i, "g")
				}
				e.must(s.Drain(e.Context()))
			}
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.awaitDone(30, "g")
			e.settled("g")
		},
	},
	{
		id: "B.S06", name: "cancel-fast", promise: "an idle subscription drains within a second",
		saboteurs: []string{"deaf-to-cancel"},
		bus: func(e *busEnv) {
			e.start()
			s := e.member("g", eventbus.SubscribeOptions{}, succeed)
			time.Sleep(e.lease / 2)
			start := time.Now()
			e.must(s.Drain(e.Context()))
			if took := time.Since(start); took > time.Second+hitch {
				e.failf("took %v, want a second at most", took)
			}
		},
	},
	{
		id: "B.S07", name: "panic", promise: "a handler that panics has failed, with value and stack; the process and the others go on",
		saboteurs: []string{"bus-swallows-panics"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2}}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00001" {
					panic("boom")
				}
				return nil
			})
			e.publishEvents(events(3)...)
			e.awaitDone(3, "g", "dead")
			h := e.log.all("dead")[0].delivery.Headers
			if h.Get("eventbus-dead-error-class") != "panic" || !strings.Contains(h.Get("eventbus-dead-error"), "boom") || !strings.Contains(h.Get("eventbus-dead-stack"), "goroutine") {
				e.failf("got headers %v, want class panic, the value and the stack", h)
			}
			e.settled("g")
		},
	},
	{
		id: "B.S08", name: "goexit", promise: "a handler that ends its goroutine has failed, and its place is used again",
		saboteurs: []string{"bus-swallows-goexit"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, exitOnce)
			e.publishEvents(events(5)...)
			e.awaitDone(5, "g")
			if n := len(e.log.all("g")); n != 10 {
				e.failf("got %d runs, want two of each of five", n)
			}
		},
	},
	{
		id: "B.S12", name: "publish-while-draining", promise: "a handler can publish until the last handler has returned",
		saboteurs: []string{"bus-closes-publishing-first"},
		bus: func(e *busEnv) {
			e.start()
			var late error
			began := make(chan struct{})
			e.member("g", eventbus.SubscribeOptions{}, func(ctx context.Context, _ *eventbus.Delivery) error {
				close(began)
				time.Sleep(e.lease / 2)
				late = e.bus.Publish(ctx, "other", &eventbus.Event{ID: "late"})
				return nil
			})
			e.publishEvents(&eventbus.Event{})
			wait(e, began, "a handler has begun")
			e.end()
			e.must(late)
		},
	},
	{
		id: "B.S13", name: "pause", promise: "a paused subscription takes nothing new until it is resumed, and is ready all the same",
		saboteurs: []string{"bus-reads-on"},
		bus: func(e *busEnv) {
			e.start()
			s := e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(events(3)...)
			e.awaitDone(3, "g")
			time.Sleep(e.soon()) // it waits for more
			s.Pause()
			s.Pause()
			time.Sleep(e.soon())
			received := s.Counts().Received
			e.publishEvents(events(7)[3:]...)
			e.still(3, e.lease+e.soon())
			if got := s.Counts().Received - received; got > 0 {
				e.failf("a paused subscription received %d events", got)
			}
			s.Resume()
			e.awaitDone(7, "g")
			awaitTold[stateChanged](e, 2)
		},
	},
	{
		id: "B.S14", name: "gone", promise: "a subscription whose group is deleted is attached anew, and says so",
		needs: []need{needAdmin}, saboteurs: []string{"bus-ends-when-gone"}, again: true,
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(events(3)...)
			e.awaitDone(3, "g")
			admin := e.verbs()
			e.must(admin.DeleteGroup(e.Context(), topic, "g"))
			e.await("it is running again", func(r *recorder) bool {
				cs := told[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.publishEvents(&eventbus.Event{ID: "new"})
			e.await("the new event", func(r *recorder) bool {
				return slices.ContainsFunc(r.runsOf("g"), func(h handling) bool { return h.delivery.ID == "new" })
			})
		},
	},
}

// busyMember joins the group g as "busy": it handles twenty events at once, so
// that much is read ahead, and then two at a time until stopped.
func (e *busEnv) busyMember() (s *eventbus.Subscription, stop func()) {
	e.Helper()
	slow := make(chan struct{})
	var quick atomic.Int64
	s = e.member("busy", eventbus.SubscribeOptions{Concurrency: 2}, func(context.Context, *eventbus.Delivery) error {
		if quick.Add(1) > 20 {
			<-slow
		}
		return nil
	})
	warm := events(20)
	for i := range warm {
		warm[i].ID = "warm" + warm[i].ID
	}
	e.publishEvents(warm...)
	e.awaitDone(20, "busy")
	return s, sync.OnceFunc(func() { close(slow) })
}

// onceAcross expects that each event succeeded once, whoever had it.
func (e *busEnv) onceAcross() {
	e.Helper()
	seen := map[string]string{}
	for _, h := range e.log.all() {
		if by, ok := seen[h.delivery.ID]; ok && h.err == nil {
			e.failf("%s was handled by %s and by %s", h.delivery.ID, by, h.name)
		}
		seen[h.delivery.ID] = h.name
	}
}
