package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busFaultLaws are about what the bus makes of a broker that is harmed.
var busFaultLaws = []law{
	{
		id: "B.P03", name: "lost-reply-with-id", promise: "with Options.Dedup a Publish whose answer is lost is repeated, and succeeds with one copy",
		needs: []need{needDropReply, needOnce}, saboteurs: []string{"bus-without-dedup"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{Dedup: true}, nil)
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.dropReply(RequestPublish)
			e.publishEvents(&eventbus.Event{ID: "one"})
			e.dropReply(RequestPublish)
			e.publishEvents(events(10)...)
			e.awaitDone(11, "g")
			e.settled("g")
		},
	},
	{
		id: "B.L06", name: "lost-read-reply", promise: "events of a read whose answer is lost are handled all the same, each once",
		needs: []need{needDropReply, needOnce}, saboteurs: []string{"bus-gives-up-on-brokers"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{Dedup: true}, nil) // a Publish on the same connection loses its answer too
			e.member("g", eventbus.SubscribeOptions{Concurrency: 4}, succeed)
			for i := range 3 {
				e.dropReply(RequestReceive)
				e.publishEvents(events(10 * (i + 1))[10*i:]...)
			}
			e.awaitDone(30, "g")
			e.settled("g")
			e.once("g")
		},
	},
	{
		id: "B.L03", name: "frozen-member", promise: "events of a bus that is held up go to another one; when it goes on, every event is settled, once",
		needs: []need{needPeer, needFreeze, needExtender}, saboteurs: []string{"long-leases"}, again: true,
		bus: (*busEnv).frozenBus,
	},
	{
		id: "B.D13", name: "deleted-while-pending", promise: "an event that the broker has lost is not handled but told as a discard, and the others go on",
		needs: []need{needLose, needDelayer}, saboteurs: []string{"bus-drops-unreadable"},
		bus: func(e *busEnv) {
			e.start()
			s := e.member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Attempt == 1 {
					return eventbus.RetryAfter(errBroken, e.lease)
				}
				return nil
			})
			es := e.publishEvents(events(3)...)
			e.awaitRuns(3, "g")
			time.Sleep(e.lease / 4) // all are delayed now
			e.suite.Faults.Lose(e.T, e.own(e.b), topic, es[1].Position)
			e.awaitDone(2, "g")
			told := awaitTold[discarded](e, 1)
			if told[0].Reason != "gone" || told[0].Position != es[1].Position {
				e.failf("got %+v, want a discard of position %s, which is gone", told[0], es[1].Position)
			}
			e.publishEvents(&eventbus.Event{ID: "next"})
			e.awaitDone(3, "g")
			if c := s.Counts(); c.Discarded != 1 {
				e.failf("got counts %+v, want one discarded", c)
			}
			e.settled("g")
		},
	},
	{
		id: "B.D16", name: "idle-quiet", promise: "an idle subscription sends its broker fewer than five requests a second",
		needs: []need{needCommands}, saboteurs: []string{"reads-restlessly"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(events(20)...)
			e.awaitDone(20, "g")
			time.Sleep(time.Second) // what had to be done after that is done
			const watched = 4
			before := e.suite.Faults.Commands(e.T, e.own(e.b))
			time.Sleep(watched * time.Second)
			if n := e.suite.Faults.Commands(e.T, e.own(e.b)) - before; n >= 5*watched {
				e.failf("got %d requests in %d s, want fewer than five a second", n, watched)
			}
		},
	},
	{
		id: "B.S09", name: "start-while-down", promise: "Subscribe fails within its context while the broker is down, and works on the same bus when it is up",
		needs: []need{needDown}, saboteurs: []string{"attaches-later"},
		bus: func(e *busEnv) {
			e.start()
			up := e.down(e.b)
			start := time.Now()
			_, err := e.bus.Subscribe(e.within(time.Second), topic, e.options(eventbus.SubscribeOptions{}), succeed)
			if err == nil {
				e.failf("Subscribe while the broker is down: got no error")
			}
			e.by(start, time.Second, "Subscribe while the broker is down returned")
			up()
			e.persist("Subscribe", func() error {
				o := e.options(eventbus.SubscribeOptions{})
				_, err := e.bus.Subscribe(e.Context(), topic, o, e.log.handler("g", o.Group, succeed))
				return err
			})
			e.publishEvents(events(5)...)
			e.awaitDone(5, "g")
			e.settled("g")
		},
	},
	{
		id: "B.S11", name: "health-truth", promise: "Ready says within seconds that the broker does not answer, and soon after it answers that all is well",
		needs: []need{needDown}, saboteurs: []string{"bus-always-ready", "bus-never-ready"},
		bus: func(e *busEnv) {
			// A connection that lost something is dead even afterwards, which only its
			// next use shows.
			e.open(eventbus.Options{Dedup: e.limits.OnceWindow > 0}, nil)
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.ready("at first", true)
			for _, f := range []struct {
				name string
				harm func(*testing.T, backend.Backend) func()
			}{{"Down", e.suite.Faults.Down}, {"Freeze", e.suite.Faults.Freeze}, {"Swallow", e.suite.Faults.Swallow}} {
				if f.harm != nil {
					end := e.lasting(f.harm(e.T, e.own(e.b)))
					e.ready("during "+f.name, false)
					end()
					e.ready("after "+f.name, true)
				}
			}
			e.await("it was degraded and runs again", func(r *recorder) bool {
				cs := told[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.publishEvents(events(5)...)
			e.awaitDone(5, "g")
		},
	},
	{
		id: "B.F01", name: "kill-loop", promise: "a broker that crashes again and again under load loses nothing that was published",
		needs: []need{needKill}, saboteurs: []string{"bus-loses-one-in-ten", "bus-gives-up-on-brokers"}, again: true,
		bus: func(e *busEnv) {
			e.underLoad(func() {
				for range 3 {
					time.Sleep(500 * time.Millisecond)
					e.kill()
				}
			})
		},
	},
	{
		id: "B.F02", name: "freeze", promise: "a broker that does not answer for a while under load loses nothing that was published",
		needs: []need{needFreeze}, saboteurs: []string{"bus-loses-one-in-ten"}, again: true,
		bus: func(e *busEnv) {
			e.underLoad(func() {
				thaw := e.freeze(e.b)
				time.Sleep(2 * e.lease)
				thaw()
			})
		},
	},
	{
		id: "B.F03", name: "reset-storm", promise: "connections that break five times a second under load lose nothing that was published",
		needs: []need{needCut}, saboteurs: []string{"bus-loses-one-in-ten", "bus-gives-up-on-brokers"}, again: true,
		bus: func(e *busEnv) {
			e.underLoad(func() {
				for range 15 {
					time.Sleep(200 * time.Millisecond)
					e.suite.Faults.Cut(e.T, e.own(e.b))
				}
			})
		},
	},
	{
		id: "B.F04", name: "half-open", promise: "a broker whose answers get lost for a while under load loses nothing that was published",
		needs: []need{needSwallow}, saboteurs: []string{"bus-loses-one-in-ten"}, again: true,
		bus: func(e *busEnv) {
			e.underLoad(func() {
				end := e.swallow(e.b)
				time.Sleep(notice)
				end()
			})
		},
	},
	{
		id: "B.F10", name: "topic-deleted", promise: "a subscription whose topic is deleted is attached anew, and says so",
		needs: []need{needAdmin}, saboteurs: []string{"bus-ends-when-gone"}, again: true,
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(events(3)...)
			e.awaitDone(3, "g")
			admin := e.verbs()
			e.must(admin.DeleteTopic(e.Context(), topic))
			e.await("it is running again", func(r *recorder) bool {
				cs := told[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.publishEvents(&eventbus.Event{ID: "new"})
			e.awaitDone(4, "g")
		},
	},
}

// ready expects Ready to tell the truth within some seconds.
func (e *busEnv) ready(when string, want bool) {
	e.Helper()
	limit := notice + e.soon()
	if want { // the bus asks again after a pause that has grown with the trouble
		limit += notice
	}
	for start := time.Now(); ; time.Sleep(pause) {
		err := e.bus.Ready(e.within(time.Second))
		switch {
		case (err == nil) == want:
			return
		case time.Since(start) > limit:
			e.failf("%s: Ready still says %v after %v, want ready %v", when, err, limit, want)
		}
	}
}

// underLoad lets events flow while harm is done, and expects that all that were
// stored are handled, and, where the backend remembers IDs, stored once.
func (e *busEnv) underLoad(harm func()) {
	e.Helper()
	e.trouble()
	dedup := e.limits.OnceWindow > 0
	e.open(eventbus.Options{Dedup: dedup}, nil)
	for range 2 {
		e.member("g", eventbus.SubscribeOptions{Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID[len(d.ID)-1] == '7' && d.Attempt == 1 }))
	}
	stop := make(chan struct{})
	var stored []string
	flows := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			id := fmt.Sprintf("%05d", i)
			ctx, cancel := context.WithTimeout(e.Context(), 2*e.lease)
			if e.publish(ctx, &eventbus.Event{ID: id}) == nil {
				if stored = append(stored, id); len(stored) == 10 {
					close(flows)
				}
			}
			cancel()
		}
	})
	select {
	case <-flows:
		harm()
		time.Sleep(200 * time.Millisecond)
	case <-e.bounded().Done():
		e.errorf("no 10 events could be published before the harm")
	}
	close(stop)
	wg.Wait()
	e.await(fmt.Sprintf("%d events are handled", len(stored)), func(r *recorder) bool {
		for ; len(stored) > 0 && r.handled["g "+stored[0]]; stored = stored[1:] {
		}
		return len(stored) == 0
	})
	e.stillAtLast()
	e.nothingLost(dedup, "g")
}

// frozenBus lets a bus in another process be held up while it handles events.
func (e *busEnv) frozenBus() {
	p := e.peer()
	other := e.otherBus(p)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	e.Cleanup(free)
	o := e.options(eventbus.SubscribeOptions{Concurrency: 4})
	e.memberOn(other, "frozen", o, func(ctx context.Context, _ *eventbus.Delivery) error {
		<-release
		select {
		case <-ctx.Done():
		case <-time.After(e.soon()): // the other bus may be quicker than the word that the lease is lost
		}
		if errors.Is(context.Cause(ctx), eventbus.ErrLeaseLost) {
			return nil // it is late, but it is done
		}
		return errBroken
	})
	e.start()
	e.publishEvents(events(4)...)
	e.awaitRuns(4, "frozen")
	thaw := e.freeze(p)
	start := time.Now()
	e.member("g", o, succeed)
	e.awaitDone(4, "g")
	e.by(start, e.lease, "another bus took over")
	free()
	e.awaitDone(4, "frozen")
	thaw()
	e.stillAtLast()
	if n := e.log.count(); n != 8 {
		e.failf("got %d runs, want two of each of four events\nrecorded: %s", n, e.log.summary())
	}
	e.publishEvents(&eventbus.Event{ID: "next"})
	e.await("the next event is handled", func(r *recorder) bool { return r.handled["g next"] || r.started["frozen"] > 4 })
}
