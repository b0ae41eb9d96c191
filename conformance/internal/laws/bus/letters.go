package bus

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// letterLaws are about dead letters of events that fail again, and about a dead-letter topic
// that cannot be stored to.
var letterLaws = []law.Law{
	{
		ID: "B.Q22", Name: "second-letter", Promise: "an event that fails for good again after its dead letter was removed has a dead letter again, however soon that is",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()},
		Faults: []string{"letters-lost"}, Again: true,
		Test: buslaw.On(secondLetter),
	},
	{
		ID: "B.Q23", Name: "final-verdict", Promise: "while a dead letter cannot be stored its event does not run again, later events of its key are handled, and Ready names the topic; then it is stored once",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-retries-late", "bus-never-ready"},
		Test: buslaw.On(finalVerdict),
	},
	{
		ID: "B.A12", Name: "ack-on-receive-dead-letter", Promise: "with AckOnReceive and DeadLetterOnReceive an event whose run fails does not come again, and is in the dead-letter topic once, with the reason",
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

// secondLetter has two rounds, with a few events and with many. In each round all events of
// the topic fail for good, their letters are removed, and the group begins again.
func secondLetter(e *buslaw.Env) {
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
	for _, m := range storedLetters(e) {
		of[m.Headers.Get("eventbus-dead-id")] = true
		positions = append(positions, m.Position)
	}
	if len(of) != n {
		e.Failf("%d events failed for good and are acknowledged, and %d have a dead letter, want all", n, len(of))
	}
	e.Verb(e.Verbs().Remove(e.Context(), law.Topic+".dlq", positions))
}

// storedLetters reads all dead letters.
func storedLetters(e *buslaw.Env) (all []backend.Message) {
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
