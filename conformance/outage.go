package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// What a driver does while its broker cannot be reached or does not answer, and
// after.
var outageLaws = []law{
	{
		id: "P15", name: "publish-while-down", promise: "a Publish while the broker is down fails in time, and what it says is not stored can be published again",
		needs:     []need{needDown},
		saboteurs: []string{"publishes-some-day"}, driver: publishWhileDown,
	}, {
		id: "S09", name: "attach-while-down", promise: "Attach fails while the broker is down, within its context, and works on the same backend when it is up",
		needs:     []need{needDown},
		saboteurs: []string{"attaches-later"}, driver: attachWhileDown,
	}, {
		id: "C53", name: "well-again", promise: "Receive returns an error soon after the broker went down, and the next one that it answers returns, if with none",
		needs:     []need{needDown},
		saboteurs: []string{"waits-out-trouble"}, driver: wellAgain,
	}, {
		id: "P14", name: "publish-held-up", promise: "a Publish that is held up returns within 100 ms after its context is done, with an unknown outcome; one copy at most is stored",
		needs:     []need{needFreeze},
		saboteurs: []string{"ignores-publish-context"}, driver: publishHeldUp,
	}, {
		id: "F04", name: "half-open", promise: "a broker whose answers get lost is found out in time, and everything goes on when it answers",
		needs:     []need{needSwallow},
		saboteurs: []string{"waits-out-trouble", "ignores-publish-context"}, driver: halfOpen,
	}, {
		id: "S10", name: "not-starved", promise: "publishing and acknowledging stay quick while many members wait for messages",
		saboteurs: []string{"small-pool"}, driver: notStarved,
	},
}

func publishWhileDown(e *driverEnv) {
	src := e.attach("g")
	up := e.down(e.b)
	m := &backend.Message{Topic: topic, ID: "id", Once: e.limits.OnceWindow > 0}
	start := time.Now()
	err := backend.ErrorAt(e.b.Publish(e.within(time.Second), []*backend.Message{m}), 0)
	if err == nil {
		e.failf("Publish while the broker is down: got no error")
	}
	e.by(start, time.Second, "Publish while the broker is down returned")
	if !passing(err) {
		e.failf("Publish: got error %v, want one that matches %q or %q", err, backend.ErrUnavailable, backend.ErrUnknownOutcome)
	}
	up()
	again := &backend.Message{ID: "id"}
	e.publish(again) // with Once, as something was harmed
	if backend.NotStored(err) && again.Duplicate {
		e.failf("Publish said that nothing is stored (%v), but there is an earlier copy", err)
	}
	e.ack(src, e.one(src))
	if m.Once || backend.NotStored(err) {
		e.nothing(src, e.lease/2, "it is stored once")
	}
}

func attachWhileDown(e *driverEnv) {
	up := e.down(e.b)
	start := time.Now()
	_, err := e.b.Attach(e.within(time.Second), e.config(backend.Config{Group: "g"}))
	if !passing(err) {
		e.failf("Attach while the broker is down: got error %v, want one that matches %q", err, backend.ErrUnavailable)
	}
	e.by(start, time.Second, "Attach while the broker is down returned")
	up()
	src := e.attach("g")
	e.publish(&backend.Message{ID: "later"})
	if d := e.one(src); d.ID != "later" {
		e.failf("got %q, want what was published", d.ID)
	}
}

// failing expects that a Receive which waits returns an error soon.
func (e *driverEnv) failing(waiting <-chan received) {
	e.Helper()
	start := time.Now()
	r := <-waiting
	if len(r.ds) > 0 || !passing(r.err) {
		e.failf("Receive: got %d deliveries and error %v, want an error that matches %q", len(r.ds), r.err, backend.ErrUnavailable)
	}
	if took := time.Since(start); took > notice+hitch {
		e.failf("Receive noticed after %v, want within %v", took, notice)
	}
}

// answered expects that Receive returns without an error soon.
func (e *driverEnv) answered(src backend.Source) {
	e.Helper()
	start := time.Now()
	for ctx := e.bounded(); ; {
		_, err := src.Receive(ctx, 1)
		took := time.Since(start)
		if err == nil && took < notice+hitch {
			return
		}
		if took > notice || !passing(err) {
			e.failf("Receive after the broker is up: got error %v after %v, want none within %v", err, took, notice)
		}
		time.Sleep(pause)
	}
}

func wellAgain(e *driverEnv) {
	src := e.attach("g")
	for range 2 {
		waiting := e.background(e.bounded(), src, 1)
		time.Sleep(100 * time.Millisecond)
		up := e.down(e.b)
		e.failing(waiting)
		time.Sleep(100 * time.Millisecond)
		up()
		e.answered(src)
	}
	e.publish(&backend.Message{ID: "later"})
	e.ack(src, e.one(src))
}

func publishHeldUp(e *driverEnv) {
	const wait, soon = 500 * time.Millisecond, 100*time.Millisecond + hitch
	src := e.attach("g")
	e.publish(&backend.Message{ID: "first"})
	e.ack(src, e.one(src))
	thaw := e.freeze(e.b)
	cancelled, cancel := context.WithCancel(e.Context())
	defer cancel()
	for _, id := range []string{"deadline", "cancelled"} {
		start, ctx := time.Now(), context.Context(cancelled)
		if id == "deadline" {
			ctx = e.within(wait)
		} else {
			time.AfterFunc(wait, cancel)
		}
		err := backend.ErrorAt(e.b.Publish(ctx, []*backend.Message{{Topic: topic, ID: id}}), 0)
		if took := time.Since(start); took > wait+soon {
			e.failf("Publish that is held up returned %v after its context was done, want within %v", took-wait, soon)
		}
		if !passing(err) || !errors.Is(err, ctx.Err()) {
			e.failf("Publish that is held up: got error %v, want one that matches %q, and %q", err, backend.ErrUnknownOutcome, ctx.Err())
		}
		if ctx.Err() == nil {
			e.failf("Publish that is held up returned %v before its context was done", err)
		}
	}
	thaw()
	e.publish(&backend.Message{ID: "last"})
	seen := map[string]int{}
	for seen["last"] == 0 {
		ds := e.receive(src, 1)
		e.ack(src, ds...)
		for _, d := range ds {
			seen[d.ID]++
		}
	}
	for _, d := range e.receiveWithin(src, 10, e.soon()) {
		seen[d.ID]++
	}
	for id, n := range seen {
		if n > 1 {
			e.failf("got %d copies of %s, want one at most", n, id)
		}
	}
}

func halfOpen(e *driverEnv) {
	src := e.attach("g")
	e.publish(&backend.Message{ID: "first"})
	e.ack(src, e.one(src))
	waiting := e.background(e.bounded(), src, 10)
	time.Sleep(100 * time.Millisecond)
	end := e.swallow(e.b)
	start := time.Now()
	err := backend.ErrorAt(e.b.Publish(e.within(time.Second), []*backend.Message{{Topic: topic, ID: "meanwhile"}}), 0)
	if took := time.Since(start); took > 2*time.Second {
		e.failf("Publish without an answer returned after %v, want a second after its context was done, at most", took)
	}
	e.is("Publish without an answer", err, backend.ErrUnknownOutcome)
	e.failing(waiting)
	end()
	e.answered(src)
	e.publish(&backend.Message{ID: "last"})
	seen := map[string]int{}
	start = time.Now()
	for time.Since(start) < e.lease+e.soon() { // what was taken and not seen comes back
		ds := e.receiveWithin(src, 1, e.lease/4)
		e.ack(src, ds...)
		for _, d := range ds {
			seen[d.ID]++
		}
	}
	if seen["last"] != 1 || seen["meanwhile"] > 1 || len(seen) > 2 {
		e.failf("got %v, want the last once, and the one whose outcome is unknown once at most", seen)
	}
}

func notStarved(e *driverEnv) {
	const readers, turns, rounds = 50, 4, 5
	src := e.attach("g")
	var idle []backend.Source
	for range readers {
		idle = append(idle, e.attachAs(backend.Config{Topic: "quiet", Group: "idle"}))
	}
	measure := func(took []time.Duration) []time.Duration {
		for range rounds {
			start := time.Now()
			e.publishN(1)
			d := e.one(src)
			e.ack(src, d)
			took = append(took, time.Since(start))
		}
		return took
	}
	// On a machine that is busy with other things all of it takes longer; but not
	// longer than without them. How busy it is changes, so they take turns.
	var alone, among []time.Duration
	for range turns {
		alone = measure(alone)
		ctx, cancel := context.WithCancel(e.Context())
		var waiting []<-chan received
		for _, s := range idle {
			waiting = append(waiting, e.background(ctx, s, 1))
		}
		time.Sleep(e.lease / 8)
		among = measure(among)
		cancel()
		for _, w := range waiting {
			<-w
		}
	}
	slices.Sort(alone)
	e.mostly(among, max(50*time.Millisecond, 3*alone[len(alone)/2]), "published, received and acknowledged")
}
