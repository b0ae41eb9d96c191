package bus

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// policyLaws are about the settlement of events that fail, expire, time out or are too
// large.
var policyLaws = []law.Law{
	{
		ID: "B.Q15", Name: "rules-by-error", Promise: "a rule for a class of errors determines attempts, delay and discarding; the dead letter names the class",
		Needs:  []law.Need{law.NeedRest},
		Engine: true, Faults: []string{"bus-ignores-failure-options"}, Test: buslaw.On(rulesByError),
	}, {
		ID: "B.Q16", Name: "retry-of-an-event", Promise: "an event carries its own retry policy to every group",
		Needs:  []law.Need{law.NeedRest},
		Engine: true, Faults: []string{"bus-drops-fields"}, Test: buslaw.On(retryOfEvent),
	}, {
		ID: "B.Q17", Name: "expired", Promise: "no handler gets an event after its TTL, not even for a retry: it is reported, and discarded or, if the subscription says so, dead-lettered",
		Faults: []string{"bus-drops-fields"}, Test: buslaw.On(expired),
	}, {
		ID: "B.Q18", Name: "max-receive", Promise: "an event larger than MaxReceive is dead-lettered whole, without a run, and holds up no other event",
		Engine: true, Faults: []string{"bus-ignores-limits"}, Test: buslaw.On(maxReceive),
	}, {
		ID: "B.Q19", Name: "on-dead-letter", Promise: "OnDeadLetter is called for each event that has failed for good, as it was published, and holds up nothing",
		Engine: true, Faults: []string{"bus-ignores-failure-options"}, Test: buslaw.On(onDeadLetter),
	}, {
		ID: "B.Q20", Name: "leave-timeouts", Promise: "with LeaveTimeouts, an event whose run timed out is redelivered when its lease has expired, and not sooner; after its last attempt it is dead-lettered",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"bus-ignores-failure-options"}, Test: buslaw.On(leaveTimeouts),
	}, {
		ID: "B.Q21", Name: "says-redelivered", Promise: "an event says whether it may have been handled before: not on its first run, but after a failure and after Snooze",
		Faults: []string{"bus-mixes-deliveries"}, Uncounted: true, Test: buslaw.On(redeliveredToHandler),
	},
}

var (
	errDeclined = errors.New("declined")
	errOld      = errors.New("old")
)

// classed opens the bus with the error classes "declined" and "old".
func classed(e *buslaw.Env) {
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	e.Open(eventbus.Options{ErrorClasses: []eventbus.ErrorClass{{Name: "declined", Is: is(errDeclined)}, {Name: "old", Is: is(errOld)}}}, nil)
}

func rulesByError(e *buslaw.Env) {
	classed(e)
	e.DeadLetters()
	retry := eventbus.Retry{MaxAttempts: 3, Initial: e.Lease / 4, Jitter: -1, Rules: []eventbus.RetryRule{
		{Class: "declined", MaxAttempts: 1}, {Class: "old", MaxAttempts: 2, Initial: e.Lease / 2, Discard: true},
	}}
	e.Member("g", eventbus.SubscribeOptions{Retry: retry, Concurrency: 3}, func(_ context.Context, d *eventbus.Delivery) error {
		switch d.ID {
		case "declined":
			return errDeclined
		case "old":
			return errOld
		}
		return buslaw.ErrBroken
	})
	e.PublishEvents(&eventbus.Event{ID: "declined"}, &eventbus.Event{ID: "old"}, &eventbus.Event{ID: "other"})
	e.AwaitDone(2, "dead")
	if d := buslaw.AwaitObserved[discarded](e, 1)[0]; d.ID != "old" {
		e.Failf("%s was discarded, want old", d.ID)
	}
	runs := map[string]int{}
	for _, h := range e.Recorder.All("g") {
		runs[h.Delivery.ID]++
	}
	if runs["declined"] != 1 || runs["old"] != 2 || runs["other"] != 3 {
		e.Failf("got %v runs, want 1, 2 and 3", runs)
	}
	for _, h := range e.Recorder.All("dead") {
		why, _ := eventbus.DeadLetterOf(&h.Delivery.Event)
		if want := map[string]string{"declined": "declined", "other": "*errors.errorString"}[why.ID]; why.ErrorClass != want {
			e.Failf("the dead letter of %s has the class %q, want %q", why.ID, why.ErrorClass, want)
		}
	}
}

func retryOfEvent(e *buslaw.Env) {
	e.Start()
	e.DeadLetters()
	for _, g := range []string{"one", "two"} {
		e.Member(g, eventbus.SubscribeOptions{Group: g, Retry: eventbus.Retry{MaxAttempts: 3, Initial: 20 * e.Lease}}, failing(func(*eventbus.Delivery) bool { return true }))
	}
	e.PublishEvents(&eventbus.Event{ID: "x", Retry: &eventbus.RetryRule{MaxAttempts: 2, Initial: e.Lease / 4, Max: e.Lease / 4}})
	e.AwaitDone(2, "dead")
	for _, g := range []string{"one", "two"} {
		if n := len(e.Recorder.All(g)); n != 2 {
			e.Failf("group %s ran the event %d times, want the two that it asks for", g, n)
		}
	}
}

func expired(e *buslaw.Env) {
	e.Start()
	e.DeadLetters()
	fails := failing(func(*eventbus.Delivery) bool { return true })
	retry := eventbus.Retry{Initial: e.Lease, Jitter: -1}
	e.Member("g", eventbus.SubscribeOptions{Retry: retry}, fails)
	e.Member("kept", eventbus.SubscribeOptions{Group: "kept", DeadLetterExpired: true, Retry: retry}, fails)
	e.PublishEvents(&eventbus.Event{ID: "late", TTL: time.Minute, Time: time.Now().Add(-time.Hour)})
	if e.Claims(law.NeedRest) {
		e.PublishEvents(&eventbus.Event{ID: "retried", TTL: e.Lease / 2})
	} else {
		e.PublishEvents(&eventbus.Event{ID: "retried", TTL: time.Minute, Time: time.Now().Add(-time.Hour)})
	}
	e.AwaitDone(2, "dead")
	buslaw.AwaitObserved[discarded](e, 2)
	for _, g := range []string{"g", "kept"} {
		for _, h := range e.Recorder.All(g) {
			if h.Delivery.ID == "late" || h.Delivery.Attempt > 1 {
				e.Failf("group %s ran %s, attempt %d, after its TTL", g, h.Delivery.ID, h.Delivery.Attempt)
			}
		}
	}
	for _, h := range e.Recorder.All("dead") {
		if why, _ := eventbus.DeadLetterOf(&h.Delivery.Event); why.Reason != eventbus.ReasonExpired || why.Group != "kept" {
			e.Failf("got a dead letter of %s for %s, want kept, for expired", why.Group, why.Reason)
		}
	}
}

func maxReceive(e *buslaw.Env) {
	e.Start()
	e.DeadLetters()
	e.Member("g", eventbus.SubscribeOptions{MaxReceive: 2000}, buslaw.Succeed)
	large := strings.Repeat("x", 3000)
	e.PublishEvents(&eventbus.Event{ID: "large", Payload: []byte(large)}, &eventbus.Event{ID: "small", Payload: []byte("x")})
	e.AwaitDone(1, "g")
	e.AwaitDone(1, "dead")
	e.Settled("g")
	if runs := e.Recorder.All("g"); len(runs) != 1 || runs[0].Delivery.ID != "small" {
		e.Failf("got %d runs, want only the small event", len(runs))
	}
	d := e.Recorder.All("dead")[0].Delivery
	if why, _ := eventbus.DeadLetterOf(&d.Event); why.Reason != eventbus.ReasonTooLarge || string(d.Payload) != large {
		e.Failf("got a dead letter for %s with %d bytes, want too-large with 3000", why.Reason, len(d.Payload))
	}
}

func onDeadLetter(e *buslaw.Env) {
	e.Start()
	e.DeadLetters()
	type call struct {
		event eventbus.Event
		why   eventbus.DeadLetter
	}
	calls, release := make(chan call, 10), make(chan struct{})
	e.Cleanup(func() { close(release) })
	o := eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 1}, OnDeadLetter: func(ev *eventbus.Event, why eventbus.DeadLetter) {
		calls <- call{*ev, why}
		<-release
	}}
	e.Member("g", o, failing(func(*eventbus.Delivery) bool { return true }))
	e.PublishEvents(&eventbus.Event{ID: "x", Type: "t", Payload: []byte("payload"), Headers: eventbus.Headers{{Name: "h", Value: "v"}}})
	got := buslaw.Wait(e, calls, "OnDeadLetter is called")
	if ev := got.event; ev.ID != "x" || ev.Type != "t" || string(ev.Payload) != "payload" || len(ev.Headers) != 1 || got.why.Attempts != 1 || got.why.Reason != eventbus.ReasonExhausted {
		e.Failf("OnDeadLetter got %+v for %+v, want the event as published", ev, got.why)
	}
	e.PublishEvents(&eventbus.Event{ID: "y"})
	e.AwaitDone(2, "dead") // although the first call of OnDeadLetter has not returned
}

func leaveTimeouts(e *buslaw.Env) {
	e.Start()
	e.DeadLetters()
	o := eventbus.SubscribeOptions{
		LeaveTimeouts: true, Timeout: e.Lease / 4, Concurrency: 2, Retry: eventbus.Retry{MaxAttempts: 2, Initial: time.Millisecond},
	}
	e.Member("g", o, func(ctx context.Context, d *eventbus.Delivery) error {
		if d.ID == "always" || d.Attempt == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	e.PublishEvents(&eventbus.Event{ID: "once"}, &eventbus.Event{ID: "always"})
	e.AwaitDone(1, "g")
	e.AwaitDone(1, "dead")
	began := map[string][]time.Time{}
	for _, run := range e.Recorder.All("g") {
		began[run.Delivery.ID] = append(began[run.Delivery.ID], run.Began)
	}
	for id, runs := range began {
		if len(runs) != 2 {
			e.Failf("got %d runs of %s, want 2", len(runs), id)
		}
		if gap := runs[1].Sub(runs[0]); gap < e.Lease*9/10 {
			e.Failf("%s was redelivered %v after its run began, want its lease of %v", id, gap, e.Lease)
		}
	}
}

func redeliveredToHandler(e *buslaw.Env) {
	e.Start()
	var runs atomic.Int64
	e.Member("g", eventbus.SubscribeOptions{}, func(context.Context, *eventbus.Delivery) error {
		switch runs.Add(1) {
		case 1:
			return buslaw.ErrBroken
		case 2:
			return eventbus.Snooze(e.Lease / 4)
		}
		return nil
	})
	e.PublishEvents(&eventbus.Event{})
	e.AwaitDone(1, "g")
	for i, run := range e.Recorder.All("g") {
		if got := run.Delivery.Redelivered; got != (i > 0) && (i > 0 || !e.Troubled) {
			e.Failf("run %d: got Redelivered %v", i+1, got)
		}
	}
}
