package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/deadletter"
)

// deadLetterLaws are about dead letters of events that fail again, and about a dead-letter topic
// that cannot be stored to.
var deadLetterLaws = []law.Law{
	{
		ID: "B.Q22", Name: "second-dead-letter", Promise: "an event that fails for good again after its dead letter was removed becomes a dead letter again, however soon that is",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"dead-letters-lost"}, Again: true,
		Test: buslaw.On(secondDeadLetter),
	},
	{
		ID: "B.Q23", Name: "final-verdict", Promise: "while a dead letter cannot be stored, its event does not run again, later events of its key are handled, and Ready names the topic; then it is stored once",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-retries-late", "bus-never-ready"},
		Test: buslaw.On(finalVerdict),
	},
	{
		ID: "B.A12", Name: "ack-on-receive-dead-letter", Promise: "with AckOnReceive and DeadLetterOnReceive, an event whose run fails is not redelivered, and is dead-lettered once, with the reason",
		Faults: []string{"bus-ignores-failure-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			s := e.Member("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive, DeadLetterOnReceive: true, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID == "00003" || d.ID == "00007" }))
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(2, "dead")
			e.AwaitDone(18, "g")
			e.Settled("g")
			once(e, "g")
			for _, run := range e.Recorder.All("dead") {
				why, _ := eventbus.DeadLetterOf(&run.Delivery.Event)
				if why.Reason != eventbus.ReasonOnReceive || why.ID != "00003" && why.ID != "00007" || why.Error != buslaw.ErrBroken.Error() {
					e.Failf("got the dead letter %+v, want one of 00003 or 00007, for on-receive", why)
				}
			}
			if c := s.Counts(); c.DeadLettered != 2 || c.Discarded != 0 || c.Acknowledged != 20 {
				e.Failf("got counts %+v, want 20 acknowledged and 2 dead-lettered", c)
			}
		}),
	},
}

// secondDeadLetter has two rounds, with a few events and with many. In each round all events of
// the topic fail for good, their dead letters are removed, and the group starts over.
func secondDeadLetter(e *buslaw.Env) {
	e.Attach("keeps") // so that the topic keeps the events
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 16}, func(context.Context, *eventbus.Delivery) error {
		return eventbus.Permanent(buslaw.ErrBroken)
	})
	es := buslaw.Events(500)
	runs := 0
	for _, c := range []struct{ first, last int }{{0, 2}, {2, len(es)}} {
		e.PublishEvents(es[c.first:c.last]...)
		runs += c.last - c.first
		buried(e, runs, c.last-c.first)
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
		runs += c.last
		buried(e, runs, c.last)
	}
}

// buried waits until this many runs have ended and the group has settled every event. It
// expects dead letters of n events, and removes them.
func buried(e *buslaw.Env, runs, n int) {
	e.Helper()
	e.AwaitRuns(runs, "g")
	e.Settled("g")
	var positions []string
	of := map[string]bool{}
	for _, m := range storedDeadLetters(e) {
		of[m.Headers.Get("eventbus-dead-id")] = true
		positions = append(positions, m.Position)
	}
	if len(of) != n {
		e.Failf("%d events failed for good and are acknowledged, and %d have a dead letter, want all", n, len(of))
	}
	e.Verb(e.Verbs().Remove(e.Context(), law.Topic+".dlq", positions))
}

// storedDeadLetters reads all dead letters.
func storedDeadLetters(e *buslaw.Env) (all []backend.Message) {
	e.Helper()
	for from := ""; ; from = all[len(all)-1].Position {
		ms, err := e.Verbs().Read(e.Context(), law.Topic+".dlq", backend.StartAfter(from), 100)
		e.Verb(err)
		if len(ms) == 0 {
			return all
		}
		all = append(all, ms...)
	}
}

// finalVerdict publishes 20 events that fail for good, and 480 later events of their keys.
func finalVerdict(e *buslaw.Env) {
	const attempts, keys, n = 2, 20, 500
	var down atomic.Bool
	down.Store(true)
	e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
		return &refusing{Backend: b, refuse: func(m *backend.Message) error {
			if m.Topic == law.Topic+".dlq" && down.Load() {
				return backend.ErrDenied
			}
			return nil
		}}
	})
	e.DeadLetters()
	fails := func(d *eventbus.Delivery) bool { return d.ID < fmt.Sprintf("%05d", keys) }
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: attempts}}, failing(fails))
	e.PublishEvents(buslaw.KeyedEvents(n, keys)...)
	e.AwaitDone(n-keys, "g")
	e.Await("each event that fails has had all its runs", func(r *buslaw.Recorder) bool { return r.Started["g"] >= n+keys*(attempts-1) })
	time.Sleep(2*e.Lease + 5*time.Second) // a second run would begin by then
	awaitReady(e, "while dead letters are refused", func(err error) bool {
		return err != nil && strings.Contains(err.Error(), law.Topic+".dlq")
	})
	if got, want := len(e.Recorder.All("g")), n+keys*(attempts-1); got != want {
		e.Failf("got %d runs while the dead letters cannot be stored, want %d: a finished failure must not run again\nrecorded: %s", got, want, e.Recorder.Summary())
	}
	down.Store(false)
	e.AwaitDone(keys, "dead")
	awaitReady(e, "after dead letters were refused", func(err error) bool { return err == nil })
	e.Settled("g")
	once(e, "dead")
	if got, want := len(e.Recorder.All("g")), n+keys*(attempts-1); got != want {
		e.Failf("got %d runs, want %d\nrecorded: %s", got, want, e.Recorder.Summary())
	}
}

// awaitReady waits until want returns true for the result of Ready.
func awaitReady(e *buslaw.Env, when string, want func(error) bool) {
	e.Helper()
	limit := law.Notice + e.Lease + e.Soon()
	for start := time.Now(); ; time.Sleep(law.Pause) {
		err := e.Bus.Ready(e.Within(time.Second))
		switch {
		case want(err):
			return
		case time.Since(start) > limit:
			e.Failf("%s Ready still says %v after %v", when, err, limit)
		}
	}
}

// buryLaws are about events that an operator makes dead letters.
var buryLaws = []law.Law{
	{
		ID: "B.Q24", Name: "bury", Promise: "when an operator buries an event that keeps failing or whose handler hangs, it becomes a dead letter and does not run again; its key continues, and a redrive brings the event back",
		Needs:  []law.Need{law.NeedDelayer, law.NeedExtender, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ignored", "dead-letters-lost"}, Again: true, Test: buslaw.On(bury),
	}, {
		ID: "B.Q25", Name: "bury-settled", Promise: "an event that its group has settled, or not yet received, cannot be buried, and no dead letter of it remains",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"remove-ignored", "settle-ahead"}, Test: buslaw.On(burySettled),
	}, {
		ID: "B.Q26", Name: "bury-frees-key", Promise: "when an operator buries an event, its key continues soon, however long the event would have waited for its retry",
		Needs:  []law.Need{law.NeedDelayer, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ahead"}, Test: buslaw.On(buryFreesKey),
	},
}

func bury(e *buslaw.Env) {
	e.Start()
	var fixed atomic.Bool
	failed, hangs, release := make(chan string, 1000), make(chan string, 1000), make(chan struct{})
	h := func(_ context.Context, d *eventbus.Delivery) error {
		switch {
		case fixed.Load():
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
		l, err := deadLetters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at, By: "ann", Why: "it blocks the queue"})
		e.Verb(err)
		if l.Reason != eventbus.ReasonOperator || l.Error != "taken away by ann: it blocks the queue" || l.Group != "g" || l.Position != at {
			e.Failf("Bury: got the dead letter %+v", l.DeadLetter)
		}
	}
	close(release) // its key can go on only after the run
	e.AwaitDone(10, "other")
	e.Await("the events that nobody has buried to be handled", func(r *buslaw.Recorder) bool { return r.Succeeded("g") >= 8 })
	if got := awaitDeadLetters(e, 2); got[0] != "00002" || got[1] != "00003" {
		e.Failf("got the dead letters of %v", got)
	}
	e.Settled("g", "other")
	runs := len(e.Recorder.RunsOf("g"))
	time.Sleep(2 * e.Lease)
	if again := len(e.Recorder.RunsOf("g")); again > runs {
		e.Failf("got %d runs after the group had settled all, want none", again-runs)
	}
	fixed.Store(true)
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
		if _, err := deadLetters(e).Bury(e.Context(), b); err == nil || errors.Is(err, errors.ErrUnsupported) {
			e.Verb(err)
			e.Failf("the event at %s of %s/%s was buried", b.Position, b.Topic, b.Group)
		}
	}
	_, err := deadLetters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at})
	want := 0
	switch {
	case err == nil && !e.Limits.FencedAcks: // such a backend need not know what a group has settled
		want = 1
	case !errors.Is(err, deadletter.ErrSettled):
		e.Failf("Bury of an event that its group has settled: got error %v, want %q", err, deadletter.ErrSettled)
	}
	awaitDeadLetters(e, want)
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
	_, err := deadLetters(e).Bury(e.Context(), deadletter.Burial{Topic: law.Topic, Group: "g", Position: at})
	e.Verb(err)
	e.Await("the key to go on", func(r *buslaw.Recorder) bool { return r.Succeeded("g") >= 9 })
	e.Settled("g")
}

// redriveLaws are about redriven dead letters, which are published again.
var redriveLaws = []law.Law{
	{
		ID: "B.Q11", Name: "redrive-one-group", Promise: "a redriven event goes to one member of the group in which it failed and to no other group, as first published and with attempts starting over; its dead letter is gone",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"dead-letters-lost", "remove-ignored"}, Again: true,
		Test: buslaw.On(redriveOneGroup),
	}, {
		ID: "B.Q12", Name: "redrive-killed", Promise: "a redrive that ended before it removed the dead letters can be repeated: no event is stored twice",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover](), law.NeedOnce},
		Faults: []string{"once-ignored"}, Again: true,
		Test: buslaw.On(redriveKilled),
	}, {
		ID: "B.Q13", Name: "redrive-loops", Promise: "an event that fails again after a redrive becomes a dead letter again, with its ID and redrive count; after MaxRedrives it stays one",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"dead-letters-lost"}, Again: true,
		Test: buslaw.On(redriveLoops),
	}, {
		ID: "B.Q14", Name: "discard-dead-letters", Promise: "Discard removes exactly the dead letters that match its filter",
		Needs:  []law.Need{law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"remove-ignored"},
		Test:   buslaw.On(discardDeadLetters),
	},
}

// deadLetters returns the [deadletter.Topic] with the dead letters of [law.Topic].
func deadLetters(e *buslaw.Env) *deadletter.Topic {
	e.Helper()
	t, err := deadletter.Open(e.Backend, law.Topic+".dlq")
	e.Must(err)
	return t
}

// redrives runs the redrive r, and expects that it returns the report want.
func redrives(e *buslaw.Env, r deadletter.Redrive, want deadletter.Report) {
	e.Helper()
	got, err := deadLetters(e).Redrive(e.Context(), r)
	e.Verb(err)
	if got != want {
		e.Failf("Redrive: got %+v, want %+v", got, want)
	}
}

// awaitDeadLetters waits until there are n dead letters, and returns the sorted IDs of their
// events.
func awaitDeadLetters(e *buslaw.Env, n int) []string {
	e.Helper()
	for end := time.Now().Add(e.Patience() + 20*e.Lease); ; time.Sleep(law.Pause) {
		var ids []string
		for l, err := range deadLetters(e).All(e.Context(), deadletter.Filter{}) {
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
			e.Failf("got the dead letters of %v, want %d\nrecorded: %s", ids, n, e.Recorder.Summary())
		}
	}
}

// failingUntil returns a handler that returns a permanent error until fixed is true.
func failingUntil(fixed *atomic.Bool) eventbus.Handler {
	return func(context.Context, *eventbus.Delivery) error {
		if fixed.Load() {
			return nil
		}
		return eventbus.Permanent(buslaw.ErrBroken)
	}
}

func redriveOneGroup(e *buslaw.Env) {
	e.Start()
	var fixed atomic.Bool
	e.Member("one", eventbus.SubscribeOptions{Group: "g"}, failingUntil(&fixed))
	e.Member("two", eventbus.SubscribeOptions{Group: "g"}, failingUntil(&fixed))
	other := e.Member("other", eventbus.SubscribeOptions{Group: "other"}, buslaw.Succeed)
	es := buslaw.KeyedEvents(20, 3)
	for _, ev := range es {
		ev.Type, ev.Headers = "order.placed", eventbus.Headers{{Name: "h", Value: ev.ID}}
	}
	e.PublishEvents(es...)
	awaitDeadLetters(e, 20)
	e.AwaitDone(20, "other")
	fixed.Store(true)
	redrives(e, deadletter.Redrive{}, deadletter.Report{Redriven: 20})
	e.AwaitDone(20, "one", "two")
	for end := time.Now().Add(e.Patience()); other.Counts().Received < 40 && time.Now().Before(end); {
		time.Sleep(law.Pause) // the other group receives the redriven events too, but its bus does not run the handler for them
	}
	e.Settled("g", "other")
	if n := len(e.Recorder.All("other")); n != 20 {
		e.Failf("the other group got %d events, want only the 20 of the first time", n)
	}
	if left := awaitDeadLetters(e, 0); len(left) > 0 {
		e.Failf("the dead letters %v are left", left)
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

// A keepsRemoved is a backend on which each Remove fails, so that a redrive ends as if its
// process had been killed before Remove.
type keepsRemoved struct{ backend.Backend }

func (s keepsRemoved) Unwrap() backend.Backend { return s.Backend }

func (keepsRemoved) Remove(context.Context, string, []string) error { return backend.ErrUnavailable }

func redriveKilled(e *buslaw.Env) {
	e.Start()
	var fixed atomic.Bool
	e.Member("g", eventbus.SubscribeOptions{}, failingUntil(&fixed))
	e.PublishEvents(buslaw.Events(5)...)
	awaitDeadLetters(e, 5)
	fixed.Store(true)
	killed, err := deadletter.Open(keepsRemoved{e.Backend}, law.Topic+".dlq")
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
		if ids := awaitDeadLetters(e, 1); ids[0] != "x" {
			e.Failf("after %d redrives the dead letter is of %q, want x", n, ids[0])
		}
		if runs := len(e.Recorder.All("g")); runs != 2*(n+1) {
			e.Failf("after %d redrives there were %d runs, want two attempts each time", n, runs)
		}
		for l, err := range deadLetters(e).All(e.Context(), deadletter.Filter{}) {
			if e.Must(err); l.Redriven != n {
				e.Failf("the dead letter says that its event was redriven %d times, want %d", l.Redriven, n)
			}
		}
		redrives(e, deadletter.Redrive{MaxRedrives: 2}, deadletter.Report{Redriven: 1})
	}
	awaitDeadLetters(e, 1)
	redrives(e, deadletter.Redrive{MaxRedrives: 2}, deadletter.Report{Looping: 1})
}

func discardDeadLetters(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, failingUntil(new(atomic.Bool)))
	es := buslaw.Events(10)
	for i, ev := range es {
		ev.Type = []string{"a", "b"}[i%2]
	}
	e.PublishEvents(es...)
	awaitDeadLetters(e, 10)
	n, err := deadLetters(e).Discard(e.Context(), deadletter.Filter{Type: "a"})
	e.Verb(err)
	if n != 5 {
		e.Failf("Discard removed %d dead letters, want 5", n)
	}
	if got, want := awaitDeadLetters(e, 5), []string{"00001", "00003", "00005", "00007", "00009"}; !slices.Equal(got, want) {
		e.Failf("the dead letters of %v are left, want those of %v", got, want)
	}
}
