package bus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// lostLaws are about a subscription whose topic or group is deleted while it has events.
var lostLaws = []law.Law{
	{
		ID: "B.F11", Name: "topic-recreated", Promise: "a subscription whose topic is deleted and recreated during a pause misses no event of the new topic",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"position-restarts"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(named("old", 5)...)
			e.AwaitDone(5, "g")
			s.Pause()
			time.Sleep(e.Soon()) // the Receive under way ends
			e.Verb(e.Verbs().DeleteTopic(e.Context(), law.Topic))
			e.PublishEvents(named("new", 12)...)
			s.Resume()
			for _, ev := range named("new", 12) {
				e.Await("the new topic's event "+ev.ID+" is handled", func(r *buslaw.Recorder) bool { return r.Handled["g "+ev.ID] })
			}
		}),
	}, {
		ID: "B.F12", Name: "lost-in-hand", Promise: "when a group is deleted, its member is redelivered the events that it was holding: one that is waiting for its retry, and one whose run fails later",
		Needs: []law.Need{law.NeedVerb[backend.Admin](), law.NeedRest}, Faults: []string{"start-latest"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Attach("keeps") // so that the topic keeps the events
			e.Start()
			lost := make(chan struct{})
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, func(_ context.Context, d *eventbus.Delivery) error {
				select {
				case <-lost:
					return nil
				default:
				}
				switch d.ID {
				case "00001":
					return eventbus.RetryAfter(buslaw.ErrBroken, 2*e.Lease)
				case "00250":
					<-lost
					return buslaw.ErrBroken
				}
				return nil
			})
			e.PublishEvents(buslaw.Events(500)...)
			e.AwaitDone(498, "g")
			time.Sleep(e.Soon()) // the retry waits, and the others are acknowledged
			e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"))
			e.Await("the member has attached again", func(r *buslaw.Recorder) bool {
				cs := buslaw.Observed[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == observer.Running
			})
			close(lost)
			for _, id := range []string{"00001", "00250"} {
				e.Await("event "+id+", which was in hand, is handled", func(r *buslaw.Recorder) bool { return r.Handled["g "+id] })
			}
		}),
	}, {
		ID: "B.F13", Name: "reset-then-lost", Promise: "a group that is deleted while it replays its topic from the start continues from there",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"start-latest"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			const n = 20
			e.Attach("keeps")
			e.Start()
			again, lost := make(chan struct{}), make(chan struct{})
			var replay atomic.Bool
			e.Member("g", eventbus.SubscribeOptions{MaxInFlight: 1}, func(context.Context, *eventbus.Delivery) error {
				if replay.CompareAndSwap(true, false) {
					close(again)
					<-lost
				}
				return nil
			})
			e.PublishEvents(buslaw.Events(n)...)
			e.AwaitDone(n, "g")
			replay.Store(true)
			e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
			buslaw.Wait(e, again, "the first event runs again")
			e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"))
			close(lost)
			e.Await("every event has run again", func(r *buslaw.Recorder) bool {
				runs := map[string]int{}
				for _, h := range r.RunsOf("g") {
					runs[h.Delivery.ID]++
				}
				twice := 0
				for _, k := range runs {
					if k > 1 {
						twice++
					}
				}
				return twice == n
			})
		}),
	},
}

// named returns n events whose IDs begin with prefix.
func named(prefix string, n int) []*eventbus.Event {
	es := buslaw.Events(n)
	for _, ev := range es {
		ev.ID = prefix + ev.ID
	}
	return es
}
