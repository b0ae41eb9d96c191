package bus

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/deadletter"
)

// buryLaws are about events that an operator makes dead letters.
var buryLaws = []law.Law{
	{
		ID: "B.Q24", Name: "bury", Promise: "an event that fails again and again, or whose handler hangs, and that an operator buries is a dead letter and does not run again; its key goes on, and a redrive brings it back",
		Needs:  []law.Need{law.NeedDelayer, law.NeedExtender, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ignored", "letters-lost"}, Again: true, Test: buslaw.On(bury),
	}, {
		ID: "B.Q25", Name: "bury-settled", Promise: "an event that its group has settled, or not received yet, cannot be buried: no dead letter of it stays",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"remove-ignored", "settle-ahead"}, Test: buslaw.On(burySettled),
	}, {
		ID: "B.Q26", Name: "bury-frees-key", Promise: "the key of an event that an operator buries goes on soon, however long the event would have waited for its retry",
		Needs:  []law.Need{law.NeedDelayer, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ahead"}, Test: buslaw.On(buryFreesKey),
	},
}

func bury(e *buslaw.Env) {
	e.Start()
	var mended atomic.Bool
	failed, hangs, release := make(chan string, 1000), make(chan string, 1000), make(chan struct{})
	h := func(_ context.Context, d *eventbus.Delivery) error {
		switch {
		case mended.Load():
		case d.ID == "00002":
			failed <- d.Position
			return buslaw.ErrBroken
		case d.ID == "00003":
			hangs <- d.Position
			<-release
		}
		return nil
	}
	o := eventbus.SubscribeOptions{
		Group: "g", Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: -1, Initial: e.Lease / 2, Max: e.Lease / 2},
	}
	e.Member("g", o, h)
	e.Member("other", eventbus.SubscribeOptions{Group: "other"}, buslaw.Succeed)
	e.PublishEvents(buslaw.KeyedEvents(10, 2)...)
	for _, at := range []string{buslaw.Wait(e, failed, "a run that fails"), buslaw.Wait(e, hangs, "a run that hangs")} {
		l, err := letters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at, By: "ann", Why: "it blocks the queue"})
		e.Verb(err)
		if l.Reason != eventbus.ReasonOperator || l.Error != "taken away by ann: it blocks the queue" || l.Group != "g" || l.Position != at {
			e.Failf("Bury: got the letter %+v", l.DeadLetter)
		}
	}
	close(release) // its key can go on only after the run
	e.AwaitDone(10, "other")
	e.Await("the events that nobody has buried to be handled", func(r *buslaw.Recorder) bool { return r.Succeeded("g") >= 8 })
	if got := awaitLetters(e, 2); got[0] != "00002" || got[1] != "00003" {
		e.Failf("got the letters of %v", got)
	}
	e.Settled("g", "other")
	runs := len(e.Recorder.RunsOf("g"))
	time.Sleep(2 * e.Lease)
	if again := len(e.Recorder.RunsOf("g")); again > runs {
		e.Failf("got %d runs after the group had settled all, want none", again-runs)
	}
	mended.Store(true)
	redrives(e, deadletter.Redrive{}, deadletter.Report{Redriven: 2})
	e.Await("the events that were buried to be handled", func(r *buslaw.Recorder) bool { return len(r.RunsOf("g")) >= runs+2 })
	e.Settled("g", "other")
	if n := len(e.Recorder.RunsOf("other")); n != 10 {
		e.Failf("another group had %d runs, want 10", n)
	}
}

func burySettled(e *buslaw.Env) {
	e.Start()
	e.Attach("late") // it receives nothing, and the topic keeps the events for it
	ran := make(chan string, 10)
	e.Member("g", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		ran <- d.Position
		return nil
	})
	e.PublishEvents(buslaw.Events(1)...)
	at := buslaw.Wait(e, ran, "a run")
	e.AwaitDone(1, "g")
	time.Sleep(e.Soon()) // the acknowledgement is stored
	for _, b := range []deadletter.Burial{
		{Topic: law.Topic, Group: "late", Position: at},
		{Topic: law.Topic, Group: "g", Position: "x"},
		{Topic: law.Topic, Group: "nobody", Position: at},
		{Topic: "nowhere", Group: "g", Position: at},
	} {
		if _, err := letters(e).Bury(e.Context(), b); err == nil || errors.Is(err, errors.ErrUnsupported) {
			e.Verb(err)
			e.Failf("the event at %s of %s/%s was buried", b.Position, b.Topic, b.Group)
		}
	}
	_, err := letters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at})
	want := 0
	switch {
	case err == nil && !e.Limits.FencedAcks: // such a backend need not know what a group has settled
		want = 1
	case !errors.Is(err, deadletter.ErrSettled):
		e.Failf("Bury of an event that its group has settled: got error %v, want %q", err, deadletter.ErrSettled)
	}
	awaitLetters(e, want)
}

func buryFreesKey(e *buslaw.Env) {
	e.Start()
	failed := make(chan string, 10)
	e.Member("g", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
		if d.ID == "00002" {
			failed <- d.Position
			return eventbus.RetryAfter(buslaw.ErrBroken, time.Hour)
		}
		return nil
	})
	e.PublishEvents(buslaw.KeyedEvents(10, 2)...) // the events with even IDs have the first key
	at := buslaw.Wait(e, failed, "a run that fails")
	e.Await("the other key to be handled", func(r *buslaw.Recorder) bool { return r.Succeeded("g") >= 6 })
	time.Sleep(e.Lease)
	if n := e.Recorder.Succeeded("g"); n != 6 {
		e.Failf("%d events were handled, want 6: the others are behind one that has failed", n)
	}
	_, err := letters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at})
	e.Verb(err)
	e.Await("the key to go on", func(r *buslaw.Recorder) bool { return r.Succeeded("g") >= 9 })
	e.Settled("g")
}
