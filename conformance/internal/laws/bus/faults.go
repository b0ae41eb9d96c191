package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// faultLaws are about a bus whose broker is harmed.
var faultLaws = []law.Law{
	{
		ID: "B.P03", Name: "lost-reply-with-id", Promise: "with Options.Dedup, a Publish whose answer is lost is repeated and succeeds, storing one copy",
		Needs: []law.Need{law.NeedDropReply, law.NeedOnce}, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{Dedup: true}, nil)
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.DropReply(law.RequestPublish)
			e.PublishEvents(&eventbus.Event{ID: "one"})
			e.DropReply(law.RequestPublish)
			e.PublishEvents(buslaw.Events(10)...)
			e.AwaitDone(11, "g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.L06", Name: "lost-read-reply", Promise: "events are handled even if the answer to the read that fetched them is lost, each once",
		Needs: []law.Need{law.NeedDropReply, law.NeedOnce}, Faults: []string{"member-gives-up"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{Dedup: true}, nil) // if the answer to a Publish gets lost too, the bus repeats the Publish, and Dedup prevents a duplicate
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
			for i := range 3 {
				e.DropReply(law.RequestReceive)
				e.PublishEvents(buslaw.Events(10 * (i + 1))[10*i:]...)
			}
			e.AwaitDone(30, "g")
			e.Settled("g")
			once(e, "g")
		}),
	},
	{
		ID: "B.L03", Name: "frozen-member", Promise: "events of a bus that is held up go to another bus, and once it continues, every event is settled, once",
		Needs: []law.Need{law.NeedPeer, law.NeedFreeze, law.NeedExtender}, Faults: []string{"lease-long"}, Again: true,
		Test: buslaw.On(frozenBus),
	},
	{
		ID: "B.D13", Name: "deleted-while-pending", Promise: "an event that the broker has lost is not handled but reported as discarded, and the other events are handled",
		Needs: []law.Need{law.NeedLose, law.NeedDelayer}, Faults: []string{"receive-skips-gone"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Attempt == 1 {
					return eventbus.RetryAfter(buslaw.ErrBroken, e.Lease)
				}
				return nil
			})
			es := e.PublishEvents(buslaw.Events(3)...)
			e.AwaitRuns(3, "g")
			time.Sleep(e.Lease / 4) // all events are delayed now
			e.Lose(law.Topic, es[1].Position)
			e.AwaitDone(2, "g")
			gone := buslaw.AwaitObserved[discarded](e, 1)
			if gone[0].Reason != "gone" || gone[0].Position != es[1].Position {
				e.Failf("got %+v, want a discard of position %s, which is gone", gone[0], es[1].Position)
			}
			e.PublishEvents(&eventbus.Event{ID: "next"})
			e.AwaitDone(3, "g")
			if c := s.Counts(); c.Discarded != 1 {
				e.Failf("got counts %+v, want one discarded", c)
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.D16", Name: "idle-quiet", Promise: "an idle subscription with a lease of at least four seconds sends fewer than five requests per second to its broker",
		Needs: []law.Need{law.NeedCommands}, Faults: []string{"receive-polls"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Lease: max(e.Lease, 4*time.Second)}, buslaw.Succeed) // with a shorter one NATS is asked more often
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(20, "g")
			time.Sleep(time.Second) // the bus may still settle and clean up
			const watched = 4
			var sent []int64
			for range 3 { // on a busy machine the driver may have to connect again meanwhile
				before := e.Commands()
				time.Sleep(watched * time.Second)
				if sent = append(sent, e.Commands()-before); sent[len(sent)-1] < 5*watched {
					return
				}
			}
			e.Failf("got %v requests in %d s each, want fewer than five a second", sent, watched)
		}),
	},
	{
		ID: "B.S09", Name: "start-while-down", Promise: "Subscribe fails within its context while the broker is down, and works on the same bus once it is up",
		Needs: []law.Need{law.NeedDown}, Faults: []string{"attach-later"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			up := e.Down(e.Backend)
			start := time.Now()
			_, err := e.Bus.Subscribe(e.Within(time.Second), law.Topic, e.Options(eventbus.SubscribeOptions{}), buslaw.Succeed)
			if err == nil {
				e.Failf("Subscribe while the broker is down: got no error")
			}
			e.By(start, time.Second, "Subscribe while the broker is down returned")
			up()
			e.Persist("Subscribe", func() error {
				o := e.Options(eventbus.SubscribeOptions{})
				_, err := e.Bus.Subscribe(e.Context(), law.Topic, o, e.Recorder.Handler("g", o.Group, buslaw.Succeed))
				return err
			})
			e.PublishEvents(buslaw.Events(5)...)
			e.AwaitDone(5, "g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.S11", Name: "health-truth", Promise: "Ready reports within seconds that the broker is not responding, and recovers soon after it responds",
		Needs: []law.Need{law.NeedDown}, Faults: []string{"bus-never-ready"},
		Test: buslaw.On(func(e *buslaw.Env) {
			// A connection that lost an answer gets no more answers. The bus detects this
			// when a call fails. Then it may repeat a Publish, because Dedup is set.
			e.Open(eventbus.Options{Dedup: e.Limits.OnceWindow > 0}, nil)
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			ready(e, "at first", true)
			for _, f := range []struct {
				name string
				need law.Need
				harm func(backend.Backend) (end func())
			}{{"Down", law.NeedDown, e.Down}, {"Freeze", law.NeedFreeze, e.Freeze}, {"Swallow", law.NeedSwallow, e.Swallow}} {
				if e.Claims(f.need) {
					end := f.harm(e.Backend)
					ready(e, "during "+f.name, false)
					end()
					ready(e, "after "+f.name, true)
				}
			}
			e.Await("it was degraded and runs again", func(r *buslaw.Recorder) bool {
				cs := buslaw.Observed[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.PublishEvents(buslaw.Events(5)...)
			e.AwaitDone(5, "g")
		}),
	},
	{
		ID: "B.F01", Name: "kill-loop", Promise: "no published event is lost when the broker crashes repeatedly under load",
		Needs: []law.Need{law.NeedKill}, Faults: []string{"bus-loses-one-in-ten", "member-gives-up"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			underLoad(e, func() {
				for range 3 {
					time.Sleep(500 * time.Millisecond)
					e.Kill()
				}
			})
		}),
	},
	{
		ID: "B.F02", Name: "freeze", Promise: "no published event is lost when the broker stops responding for a while under load",
		Needs: []law.Need{law.NeedFreeze}, Faults: []string{"bus-loses-one-in-ten"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			underLoad(e, func() {
				thaw := e.Freeze(e.Backend)
				time.Sleep(2 * e.Lease)
				thaw()
			})
		}),
	},
	{
		ID: "B.F03", Name: "reset-storm", Promise: "no published event is lost when connections break five times a second under load",
		Needs: []law.Need{law.NeedCut}, Faults: []string{"bus-loses-one-in-ten", "member-gives-up"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			underLoad(e, func() {
				for range 15 {
					time.Sleep(200 * time.Millisecond)
					e.Cut(e.Backend)
				}
			})
		}),
	},
	{
		ID: "B.F04", Name: "half-open", Promise: "no published event is lost when the broker's answers get lost for a while under load",
		Needs: []law.Need{law.NeedSwallow}, Faults: []string{"bus-loses-one-in-ten"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			underLoad(e, func() {
				end := e.Swallow(e.Backend)
				time.Sleep(law.Notice)
				end()
			})
		}),
	},
	{
		ID: "B.F10", Name: "topic-deleted", Promise: "a subscription whose topic is deleted attaches again, and reports it",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"member-gives-up"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(3)...)
			e.AwaitDone(3, "g")
			admin := e.Verbs()
			e.Must(admin.DeleteTopic(e.Context(), law.Topic))
			e.Await("it is running again", func(r *buslaw.Recorder) bool {
				cs := buslaw.Observed[stateChanged](r)
				return len(cs) >= 3 && cs[len(cs)-1].To == "running" && slices.ContainsFunc(cs, func(c stateChanged) bool { return c.To == "degraded" })
			})
			e.PublishEvents(&eventbus.Event{ID: "new"})
			e.AwaitDone(4, "g")
		}),
	},
}

// ready waits until Ready returns nil. If want is false, it waits until Ready returns an
// error.
func ready(e *buslaw.Env, when string, want bool) {
	e.Helper()
	limit := law.Notice + e.Soon()
	if want { // the pauses between the bus's attempts to connect grow during an outage
		limit += law.Notice
	}
	for start := time.Now(); ; time.Sleep(law.Pause) {
		err := e.Bus.Ready(e.Within(time.Second))
		switch {
		case (err == nil) == want:
			return
		case time.Since(start) > limit:
			e.Failf("%s: Ready still says %v after %v, want ready %v", when, err, limit, want)
		}
	}
}

// underLoad publishes events while it calls harm. It expects that every stored event is
// handled. If the backend offers Once, it also expects that each event is stored only one
// time.
func underLoad(e *buslaw.Env, harm func()) {
	e.Helper()
	e.Trouble()
	dedup := e.Limits.OnceWindow > 0
	e.Open(eventbus.Options{Dedup: dedup}, nil)
	for range 2 {
		e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID[len(d.ID)-1] == '7' && d.Attempt == 1 }))
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
			ctx, cancel := context.WithTimeout(e.Context(), 2*e.Lease)
			if e.Publish(ctx, &eventbus.Event{ID: id}) == nil {
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
	case <-e.Bounded().Done():
		e.Errorf("no 10 events could be published before the harm")
	}
	close(stop)
	wg.Wait()
	e.Await(fmt.Sprintf("%d events are handled", len(stored)), func(r *buslaw.Recorder) bool {
		for ; len(stored) > 0 && r.Handled["g "+stored[0]]; stored = stored[1:] {
		}
		return len(stored) == 0
	})
	e.StillAtLast()
	e.NothingLost(dedup, "g")
}

// frozenBus runs a bus in another process. It freezes the connections of this bus while the
// bus handles events.
func frozenBus(e *buslaw.Env) {
	p := e.Peer()
	other := e.OtherBus(p, eventbus.Options{})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	e.Cleanup(free)
	o := e.Options(eventbus.SubscribeOptions{Concurrency: 4})
	e.MemberOn(other, "frozen", o, func(ctx context.Context, _ *eventbus.Delivery) error {
		<-release
		select {
		case <-ctx.Done():
		case <-time.After(e.Soon()): // the frozen bus may report the lost lease late
		}
		if errors.Is(context.Cause(ctx), eventbus.ErrLeaseLost) {
			return nil // reports success, although the lease is lost
		}
		return buslaw.ErrBroken
	})
	e.Start()
	e.PublishEvents(buslaw.Events(4)...)
	e.AwaitRuns(4, "frozen")
	thaw := e.Freeze(p)
	start := time.Now()
	e.Member("g", o, buslaw.Succeed)
	e.AwaitDone(4, "g")
	e.By(start, e.Lease, "another bus took over")
	free()
	e.AwaitDone(4, "frozen")
	thaw()
	e.StillAtLast()
	if n := e.Recorder.Count(); n != 8 {
		e.Failf("got %d runs, want two of each of four events\nrecorded: %s", n, e.Recorder.Summary())
	}
	e.PublishEvents(&eventbus.Event{ID: "next"})
	e.Await("the next event is handled", func(r *buslaw.Recorder) bool { return r.Handled["g next"] || r.Started["frozen"] > 4 })
}
