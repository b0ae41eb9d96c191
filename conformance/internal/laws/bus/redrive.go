package bus

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/deadletter"
)

// redriveLaws are about redriven dead letters, which are published again.
var redriveLaws = []law.Law{
	{
		ID: "B.Q11", Name: "redrive-one-group", Promise: "a redriven event comes to one member of the group that failed, as it was first published and with new attempts, and to no other group; its letter is gone",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"letters-lost", "remove-ignored"}, Again: true,
		Test: buslaw.On(redriveOneGroup),
	}, {
		ID: "B.Q12", Name: "redrive-killed", Promise: "a redrive that ended before it removed the letters can be repeated: no event is stored twice",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedOnce},
		Faults: []string{"once-ignored"}, Again: true,
		Test: buslaw.On(redriveKilled),
	}, {
		ID: "B.Q13", Name: "redrive-loops", Promise: "an event that fails again after a redrive is a dead letter again, with its ID and the number of redrives; after MaxRedrives it stays one",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"letters-lost"}, Again: true,
		Test: buslaw.On(redriveLoops),
	}, {
		ID: "B.Q14", Name: "discard-letters", Promise: "Discard removes exactly the letters of its filter",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"remove-ignored"},
		Test:   buslaw.On(discardLetters),
	},
}

// letters returns the [deadletter.Topic] with the dead letters of [law.Topic].
func letters(e *buslaw.Env) *deadletter.Topic {
	e.Helper()
	t, err := deadletter.Open(e.Backend, law.Topic+".dlq")
	e.Must(err)
	return t
}

// redrives runs the redrive r, and expects that it returns the report want.
func redrives(e *buslaw.Env, r deadletter.Redrive, want deadletter.Report) {
	e.Helper()
	got, err := letters(e).Redrive(e.Context(), r)
	e.Verb(err)
	if got != want {
		e.Failf("Redrive: got %+v, want %+v", got, want)
	}
}

// awaitLetters waits until there are n dead letters, and returns the sorted IDs of their
// events.
func awaitLetters(e *buslaw.Env, n int) []string {
	e.Helper()
	for end := time.Now().Add(e.Patience() + 20*e.Lease); ; time.Sleep(law.Pause) {
		var ids []string
		for l, err := range letters(e).All(e.Context(), deadletter.Filter{}) {
			if errors.Is(err, backend.ErrGone) {
				break // the topic does not exist until it gets its first dead letter
			}
			e.Verb(err)
			ids = append(ids, l.ID)
		}
		if slices.Sort(ids); len(ids) == n {
			return ids
		}
		if time.Now().After(end) {
			e.Failf("got the letters of %v, want %d\nrecorded: %s", ids, n, e.Recorder.Summary())
		}
	}
}

// mending returns a handler that returns a permanent error until mended is true.
func mending(mended *atomic.Bool) eventbus.Handler {
	return func(context.Context, *eventbus.Delivery) error {
		if mended.Load() {
			return nil
		}
		return eventbus.Permanent(buslaw.ErrBroken)
	}
}

func redriveOneGroup(e *buslaw.Env) {
	e.Start()
	var mended atomic.Bool
	e.Member("one", eventbus.SubscribeOptions{Group: "g"}, mending(&mended))
	e.Member("two", eventbus.SubscribeOptions{Group: "g"}, mending(&mended))
	other := e.Member("other", eventbus.SubscribeOptions{Group: "other"}, buslaw.Succeed)
	es := buslaw.KeyedEvents(20, 3)
	for _, ev := range es {
		ev.Type, ev.Headers = "order.placed", eventbus.Headers{{Name: "h", Value: ev.ID}}
	}
	e.PublishEvents(es...)
	awaitLetters(e, 20)
	e.AwaitDone(20, "other")
	mended.Store(true)
	redrives(e, deadletter.Redrive{}, deadletter.Report{Redriven: 20})
	e.AwaitDone(20, "one", "two")
	for end := time.Now().Add(e.Patience()); other.Counts().Received < 40 && time.Now().Before(end); {
		time.Sleep(law.Pause) // the other group receives the redriven events too, but its bus does not run the handler for them
	}
	e.Settled("g", "other")
	if n := len(e.Recorder.All("other")); n != 20 {
		e.Failf("the other group got %d events, want only the 20 of the first time", n)
	}
	if left := awaitLetters(e, 0); len(left) > 0 {
		e.Failf("the letters %v are left", left)
	}
	for _, run := range slices.Concat(e.Recorder.All("one"), e.Recorder.All("two")) {
		d := run.Delivery
		if i := slices.IndexFunc(es, func(ev *eventbus.Event) bool { return ev.ID == d.ID }); i < 0 || d.Attempt != 1 ||
			d.Key != es[i].Key || d.Type != "order.placed" || string(d.Payload) != string(es[i].Payload) ||
			len(d.Headers) != 1 || d.Headers.Get("h") != d.ID {
			e.Failf("got %+v, want an event as first published, attempt 1", d)
		}
	}
}

// A staying backend fails each Remove, so that a redrive ends as if its process had been
// killed before Remove.
type staying struct{ backend.Backend }

func (s staying) Unwrap() backend.Backend { return s.Backend }

func (staying) Remove(context.Context, string, []string) error { return backend.ErrUnavailable }

func redriveKilled(e *buslaw.Env) {
	e.Start()
	var mended atomic.Bool
	e.Member("g", eventbus.SubscribeOptions{}, mending(&mended))
	e.PublishEvents(buslaw.Events(5)...)
	awaitLetters(e, 5)
	mended.Store(true)
	killed, err := deadletter.Open(staying{e.Backend}, law.Topic+".dlq")
	e.Must(err)
	for range 2 {
		_, err = killed.Redrive(e.Context(), deadletter.Redrive{})
		e.Is("Redrive without Remove", err, backend.ErrUnavailable)
	}
	redrives(e, deadletter.Redrive{}, deadletter.Report{Redriven: 5})
	e.AwaitDone(5, "g")
	e.Settled("g")
	if n := e.Recorder.Succeeded("g"); n != 5 {
		e.Failf("%d runs succeeded, want 5: events were stored twice", n)
	}
}

func redriveLoops(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2}}, failing(func(*eventbus.Delivery) bool { return true }))
	e.PublishEvents(&eventbus.Event{ID: "x"})
	for n := range 2 {
		if ids := awaitLetters(e, 1); ids[0] != "x" {
			e.Failf("after %d redrives the letter is of %q, want x", n, ids[0])
		}
		if runs := len(e.Recorder.All("g")); runs != 2*(n+1) {
			e.Failf("after %d redrives there were %d runs, want two attempts each time", n, runs)
		}
		for l, err := range letters(e).All(e.Context(), deadletter.Filter{}) {
			if e.Must(err); l.Redriven != n {
				e.Failf("the letter says that its event was redriven %d times, want %d", l.Redriven, n)
			}
		}
		redrives(e, deadletter.Redrive{MaxRedrives: 2}, deadletter.Report{Redriven: 1})
	}
	awaitLetters(e, 1)
	redrives(e, deadletter.Redrive{MaxRedrives: 2}, deadletter.Report{Looping: 1})
}

func discardLetters(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, mending(new(atomic.Bool)))
	es := buslaw.Events(10)
	for i, ev := range es {
		ev.Type = []string{"a", "b"}[i%2]
	}
	e.PublishEvents(es...)
	awaitLetters(e, 10)
	n, err := letters(e).Discard(e.Context(), deadletter.Filter{Type: "a"})
	e.Verb(err)
	if n != 5 {
		e.Failf("Discard removed %d letters, want 5", n)
	}
	if got, want := awaitLetters(e, 5), []string{"00001", "00003", "00005", "00007", "00009"}; !slices.Equal(got, want) {
		e.Failf("the letters of %v are left, want those of %v", got, want)
	}
}
