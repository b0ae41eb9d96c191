package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/request"
)

// eachLaws are about subscriptions whose group is EachInstance, about the settings of topics
// and about paused groups.
var eachLaws = []law.Law{
	{
		ID: "B.G01", Name: "each-instance", Promise: "with EachInstance, every member gets every event published after Subscribe, in key order",
		Faults: []string{"bus-shares-each"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			const n = 60
			one, two := each(e)
			e.PublishEvents(buslaw.KeyedEvents(n, 5)...)
			for _, name := range []string{one, two} {
				e.AwaitDone(n, name)
				last := map[string]string{}
				for _, h := range e.Recorder.All(name) {
					if d := h.Delivery; d.Position < last[d.Key] && !d.Redelivered {
						e.Failf("member %s got %s after a later event of its key", name, d.ID)
					} else {
						last[d.Key] = d.Position
					}
				}
			}
		}),
	}, {
		ID: "B.G02", Name: "each-discards", Promise: "with EachInstance, an event that fails for good is retried, then discarded and reported, but not dead-lettered",
		Faults: []string{"bus-joins-dead-letters"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("one", eventbus.SubscribeOptions{Group: eventbus.EachInstance, Retry: eventbus.Retry{MaxAttempts: 2, Initial: e.Lease / 10, Jitter: -1}},
				func(context.Context, *eventbus.Delivery) error { return buslaw.ErrBroken })
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.AwaitRuns(2, "one")
			buslaw.AwaitObserved[discarded](e, 1)
			if c := s.Counts(); c.DeadLettered != 0 {
				e.Failf("got the counts %+v, want no dead letter", c)
			}
		}),
	}, {
		ID: "B.G03", Name: "each-start", Promise: "with EachInstance, a member gets no event from before Subscribe, unless it sets Start",
		Faults: []string{"bus-inverts-starts"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Attach("holds") // so that the topic keeps all
			e.Member("keeps", eventbus.SubscribeOptions{Group: "keeps"}, buslaw.Succeed)
			e.PublishEvents(named("before-", 3)...)
			e.AwaitDone(3, "keeps")
			inAnHour := eventbus.StartAt(e.Now().Add(time.Hour))
			e.Member("now", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, buslaw.Succeed)
			e.Member("late", eventbus.SubscribeOptions{Group: eventbus.EachInstance, Start: inAnHour}, buslaw.Succeed)
			e.PublishEvents(named("after-", 3)...)
			e.Member("early", eventbus.SubscribeOptions{Group: eventbus.EachInstance, Start: eventbus.StartAt(time.Unix(1, 0))}, buslaw.Succeed)
			e.AwaitDone(3, "now")
			e.AwaitDone(3, "late")
			e.AwaitDone(6, "early")
			for _, name := range []string{"now", "late"} {
				for _, h := range e.Recorder.All(name) {
					if h.Delivery.ID[0] == 'b' {
						e.Failf("member %s got %s, which was published before it subscribed", name, h.Delivery.ID)
					}
				}
			}
		}),
	}, {
		ID: "B.G04", Name: "each-ends", Promise: "with EachInstance, draining a member deletes its group",
		Needs: []law.Need{law.NeedVerb[backend.Admin]()}, Faults: []string{"bus-shares-each"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("keeps", eventbus.SubscribeOptions{Group: "keeps"}, buslaw.Succeed)
			s := e.Member("one", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(3)...)
			e.AwaitDone(3, "one")
			e.Must(s.Drain(e.Context()))
			e.AwaitGroups(law.Topic, "keeps")
		}),
	}, {
		ID: "B.G05", Name: "paused-by-operator", Promise: "while an operator has paused a group, its members run nothing, stay ready and show the pause with its reason in State; they continue after the pause",
		Needs: []law.Need{law.NeedVerb[backend.Pauser]()}, Faults: []string{"bus-never-ready"},
		Test: buslaw.On(pausedByOperator),
	}, {
		ID: "B.G06", Name: "options-topics", Promise: "if Options.Topics sets Keep for a topic, its settled events are kept for groups that come later",
		Needs: []law.Need{law.NeedKeep}, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{Topics: map[string]eventbus.TopicOptions{law.Topic: {Keep: time.Hour}}}, nil)
			e.Member("first", eventbus.SubscribeOptions{Group: "first"}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(10)...)
			e.AwaitDone(10, "first")
			e.Settled("first")
			e.Maintain("first")
			has, err := e.Verbs().Declare(e.Context(), law.Topic, backend.Declaration{})
			e.Verb(err)
			if has.Keep != time.Hour {
				e.Failf("the topic has the settings %+v, want to keep events for an hour", has)
			}
			e.Member("later", eventbus.SubscribeOptions{Group: "later"}, buslaw.Succeed)
			e.AwaitDone(10, "later")
		}),
	}, {
		ID: "B.G07", Name: "request", Promise: "a request gets its own reply and no other, even when several processes send requests and share the reply topic",
		Faults: []string{"bus-mixes-deliveries"},
		Test:   buslaw.On(requests),
	},
}

func requests(e *buslaw.Env) {
	other := e.Start()
	if e.Claims(law.NeedPeer) {
		other = e.OtherBus(e.Peer(), eventbus.Options{})
	}
	o := e.Options(eventbus.SubscribeOptions{Concurrency: 8, Order: eventbus.Unordered})
	_, err := e.Bus.Subscribe(e.Context(), "prices", o, request.Handler(e.Bus, func(_ context.Context, d *eventbus.Delivery) (*eventbus.Event, error) {
		return &eventbus.Event{Payload: d.Payload}, nil
	}))
	e.Must(err)
	var wg sync.WaitGroup
	for i, bus := range []law.Bus{e.Bus, other} {
		client, err := request.New(e.Context(), bus, "replies", request.Options{})
		e.Must(err)
		for j := range 20 {
			wg.Go(func() {
				want := fmt.Sprintf("request %d of process %d", j, i)
				reply, err := client.Do(e.Bounded(), "prices", &eventbus.Event{Payload: []byte(want)})
				if err != nil {
					e.Errorf("%s: got error %v, want none", want, err)
				} else if string(reply.Payload) != want {
					e.Errorf("%s got the reply to %s", want, reply.Payload)
				}
			})
		}
	}
	wg.Wait()
}

// each starts two members with EachInstance, in processes of their own if there can be two. It
// returns their names.
func each(e *buslaw.Env) (one, two string) {
	other := e.Start()
	if e.Claims(law.NeedPeer) {
		other = e.OtherBus(e.Peer(), eventbus.Options{})
	}
	e.Member("one", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, buslaw.Succeed)
	e.MemberOn(other, "two", eventbus.SubscribeOptions{Group: eventbus.EachInstance}, buslaw.Succeed)
	return "one", "two"
}

func pausedByOperator(e *buslaw.Env) {
	e.Start()
	s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	p := backend.Pause{By: "ann", Why: "the bank is closed"}
	e.Verb(e.Verbs().Pause(e.Context(), law.Topic, "g", p))
	end := time.Now().Add(11*time.Second + e.Soon())
	for {
		state, err := s.State()
		if paused, ok := errors.AsType[*backend.PausedError](err); ok && state == observer.Paused {
			if paused.Pause.By != p.By || paused.Pause.Why != p.Why {
				e.Failf("State reports the pause %+v, want %+v", paused.Pause, p)
			}
			break
		}
		if time.Now().After(end) {
			e.Failf("got the state %s and error %v, want a paused subscription with the reason", state, err)
		}
		time.Sleep(law.Pause)
	}
	e.Must(e.Bus.Ready(e.Context()))
	e.PublishEvents(buslaw.Events(5)...)
	e.Quiet(e.Soon())
	e.Must(e.Verbs().Resume(e.Context(), law.Topic, "g"))
	e.AwaitDone(5, "g")
	if state, err := s.State(); state != observer.Running || err != nil {
		e.Failf("after the pause: got the state %s and error %v, want %s", state, err, observer.Running)
	}
}
