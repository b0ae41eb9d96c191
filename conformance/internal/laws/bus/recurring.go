package bus

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// recurringLaws are about entries that publish an event repeatedly.
var recurringLaws = []law.Law{
	{
		ID: "B.H20", Name: "recur", Promise: "a recurring entry publishes one event per due time, whose ID and Time identify that time, with any number of processes",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(recur),
	}, {
		ID: "B.H21", Name: "recur-again", Promise: "Recur with an equal entry changes nothing, and with a different one replaces the entry",
		Needs: needSchedule, Faults: []string{"bus-restarts-entries"}, Again: true,
		Test: buslaw.On(recurAgain),
	}, {
		ID: "B.H22", Name: "recur-end", Promise: "an ended or paused entry publishes nothing; a resumed one continues",
		Needs: needSchedule, Faults: []string{"bus-cancels-in-words"}, Again: true,
		Test: buslaw.On(recurEnd),
	}, {
		ID: "B.H23", Name: "recur-missed", Promise: "when all processes were down, as many missed times are made up for as Missed allows",
		Needs: needSchedule, Faults: []string{"bus-restarts-entries"}, Again: true,
		Test: buslaw.On(recurMissed),
	}, {
		ID: "B.H24", Name: "recur-survives", Promise: "an entry continues when the process that stored it ends: no time is skipped or repeated",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(recurSurvives),
	}, {
		ID: "B.H25", Name: "recur-elsewhere", Promise: "a process can list, pause and end an entry that another process has stored",
		Needs: append([]law.Need{law.NeedPeer}, needSchedule...), Faults: []string{"bus-cancels-in-words", "bus-schedules-nothing"}, Again: true,
		Test: buslaw.On(recurElsewhere),
	},
}

func tick(every time.Duration) eventbus.Recurring {
	return eventbus.Recurring{ID: "tick", Topic: law.Topic, Every: every, Event: eventbus.Event{Payload: []byte("p")}}
}

// enter calls Recur.
func enter(e *buslaw.Env, b law.Bus, r eventbus.Recurring) {
	e.Helper()
	e.Persist("Recur", func() error { return b.Recur(e.Context(), r) })
}

// rows expects that the handled events of some handlers are of times that follow each other, each
// one time.
func rows(e *buslaw.Env, every time.Duration, names ...string) {
	e.Helper()
	hs := e.Recorder.All(names...)
	slices.SortFunc(hs, func(a, b buslaw.HandlerRun) int { return a.Delivery.Time.Compare(b.Delivery.Time) })
	for i, h := range hs {
		if want := "tick/" + h.Delivery.Time.UTC().Format(time.RFC3339); h.Delivery.ID != want || h.Payload != "p" {
			e.Failf("event %s of %v with payload %q: want ID %s and payload p", h.Delivery.ID, h.Delivery.Time, h.Payload, want)
		}
		if i > 0 {
			if gap := h.Delivery.Time.Sub(hs[i-1].Delivery.Time); gap != every {
				e.Failf("event %s is %v after the previous event, want %v", h.Delivery.ID, gap, every)
			}
		}
		if late := h.Began.Sub(h.Delivery.Time); late < 0 || late > e.Soon()+e.Lease {
			e.Failf("event %s came %v after its time", h.Delivery.ID, late)
		}
	}
}

func recur(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	other := e.OtherBus(p, eventbus.Options{})
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	enter(e, e.Bus, tick(time.Second))
	enter(e, other, tick(time.Second))
	e.AwaitDone(4, "g", "other")
	rows(e, time.Second, "g", "other")
}

func recurAgain(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	for range 8 {
		enter(e, e.Bus, tick(2*time.Second))
		time.Sleep(500 * time.Millisecond)
	}
	if len(e.Recorder.All("g")) == 0 {
		e.Failf("no event came within 4 s of an entry of every 2 s that was entered again every 500 ms")
	}
	hourly := tick(time.Hour)
	enter(e, e.Bus, hourly)
	time.Sleep(e.Soon()) // an event may be on its way
	runs := e.Recorder.Count()
	e.Still(runs, 2500*time.Millisecond)
	states, err := e.Bus.RecurringEntries(e.Context(), law.Topic)
	e.Must(err)
	if len(states) != 1 || states[0].Every != time.Hour || states[0].ID != "tick" || string(states[0].Event.Payload) != "p" || time.Until(states[0].Next) < 50*time.Minute {
		e.Failf("got the entries %+v, want the hourly one", states)
	}
}

func recurEnd(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	enter(e, e.Bus, tick(time.Second))
	e.AwaitDone(1, "g")
	e.Must(e.Bus.PauseRecurring(e.Context(), law.Topic, "tick", true))
	time.Sleep(e.Soon()) // an event may be on its way
	e.Quiet(2 * time.Second)
	enter(e, e.Bus, tick(time.Second)) // as another process does at its start
	e.Quiet(2 * time.Second)
	n := len(e.Recorder.All("g"))
	e.Must(e.Bus.PauseRecurring(e.Context(), law.Topic, "tick", false))
	e.AwaitDone(n+2, "g")
	ended, err := e.Bus.EndRecurring(e.Context(), law.Topic, "tick", "unknown")
	e.Must(err)
	if want := []bool{true, false}; !slices.Equal(ended, want) {
		e.Failf("EndRecurring: got %v, want %v", ended, want)
	}
	time.Sleep(e.Soon())
	e.Quiet(2 * time.Second)
}

func recurMissed(e *buslaw.Env) {
	e.Start()
	s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	for _, missed := range []eventbus.Missed{eventbus.FireNone, eventbus.FireOnce} {
		r := tick(time.Second)
		r.ID, r.Missed = string(missed), missed
		enter(e, e.Bus, r)
	}
	e.AwaitDone(2, "g")
	e.Must(s.Drain(e.Bounded()))
	before := len(ids(e, "g"))
	time.Sleep(5500 * time.Millisecond)
	back := time.Now()
	e.Member("back", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(4, "back")
	time.Sleep(time.Second)
	var late []string
	for _, h := range e.Recorder.All("back") {
		if h.Delivery.Time.Before(back.Add(-time.Second)) {
			late = append(late, h.Delivery.ID)
		}
	}
	if len(late) > 4 { // a firing of each entry may have been under way when the member ended
		e.Failf("%d events of times came that were missed, after %d: %v", len(late), before, late)
	}
}

func recurSurvives(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	other := e.OtherBus(p, eventbus.Options{})
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	enter(e, e.Bus, tick(time.Second))
	e.MemberOn(other, "other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	enter(e, other, tick(time.Second))
	e.AwaitDone(2, "g", "other")
	e.End()
	n := len(e.Recorder.All("g", "other"))
	e.AwaitDone(n+3, "g", "other")
	rows(e, time.Second, "g", "other")
}

func recurElsewhere(e *buslaw.Env) {
	p := e.Peer()
	e.Start()
	other := e.OtherBus(p, eventbus.Options{})
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	enter(e, e.Bus, tick(time.Second))
	e.AwaitDone(1, "g")
	e.Must(other.PauseRecurring(e.Context(), law.Topic, "tick", true))
	states, err := other.RecurringEntries(e.Context(), law.Topic)
	e.Must(err)
	if len(states) != 1 || states[0].ID != "tick" || states[0].Every != time.Second || !states[0].Paused || !states[0].Next.IsZero() {
		e.Failf("got the entries %+v, want the paused one", states)
	}
	time.Sleep(e.Soon()) // an event may be on its way
	e.Quiet(2 * time.Second)
	ended, err := other.EndRecurring(e.Context(), law.Topic, "tick")
	e.Must(err)
	states, err = e.Bus.RecurringEntries(e.Context(), law.Topic)
	e.Must(err)
	if !ended[0] || len(states) != 0 {
		e.Failf("EndRecurring: got %v and the entries %+v, want true and none", ended, states)
	}
}
