package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// outageLaws are about a driver whose broker cannot be reached or does not answer.
var outageLaws = []law.Law{
	{
		ID: "P15", Name: "publish-while-down", Promise: "a Publish while the broker is down fails in time, and what it reports as not stored can be published again",
		Needs:  []law.Need{law.NeedDown},
		Faults: []string{"publish-hides-failures"}, Test: publishWhileDown,
	}, {
		ID: "S09", Name: "attach-while-down", Promise: "Attach fails within its context while the broker is down, and works on the same backend once it is up",
		Needs:  []law.Need{law.NeedDown},
		Faults: []string{"attach-later"}, Test: attachWhileDown,
	}, {
		ID: "C53", Name: "well-again", Promise: "Receive returns an error soon after the broker goes down, and the next Receive that the broker answers returns, even if with no messages",
		Needs:  []law.Need{law.NeedDown},
		Faults: []string{"receive-deaf"}, Test: wellAgain,
	}, {
		ID: "P14", Name: "publish-held-up", Promise: "a Publish that is held up returns within 100 ms after its context is done, with an unknown outcome; at most one copy is stored",
		Needs:  []law.Need{law.NeedFreeze},
		Faults: []string{"calls-ignore-contexts"}, Test: publishHeldUp,
	}, {
		ID: "F04", Name: "half-open", Promise: "a broker whose answers get lost is detected in time, and everything continues once answers arrive again",
		Needs:  []law.Need{law.NeedSwallow},
		Faults: []string{"calls-ignore-contexts"}, Test: halfOpen,
	}, {
		ID: "S10", Name: "not-starved", Promise: "publishing and acknowledging stay fast while many members wait for messages",
		Faults: []string{"receive-in-turn"}, Test: notStarved,
	},
}

func publishWhileDown(e *law.Env) {
	src := e.Attach("g")
	up := e.Down(e.Backend)
	m := &backend.Message{Topic: law.Topic, ID: "id", Once: e.Limits.OnceWindow > 0}
	start := time.Now()
	err := backend.ErrorAt(e.Backend.Publish(e.Within(time.Second), []*backend.Message{m}), 0)
	if err == nil {
		e.Failf("Publish while the broker is down: got no error")
	}
	e.By(start, time.Second, "Publish while the broker is down returned")
	if !law.Passing(err) {
		e.Failf("Publish: got error %v, want one that matches %q or %q", err, backend.ErrUnavailable, backend.ErrUnknownOutcome)
	}
	up()
	again := &backend.Message{ID: "id"}
	e.Publish(again) // Publish sets Once, because the broker was harmed
	if backend.NotStored(err) && again.Duplicate {
		e.Failf("Publish said that nothing is stored (%v), but there is an earlier copy", err)
	}
	e.Ack(src, e.One(src))
	if m.Once || backend.NotStored(err) {
		e.Nothing(src, e.Lease/2, "it is stored once")
	}
}

func attachWhileDown(e *law.Env) {
	up := e.Down(e.Backend)
	start := time.Now()
	_, err := e.Backend.Attach(e.Within(time.Second), e.Config(backend.Config{Group: "g"}))
	if !law.Passing(err) {
		e.Failf("Attach while the broker is down: got error %v, want one that matches %q", err, backend.ErrUnavailable)
	}
	e.By(start, time.Second, "Attach while the broker is down returned")
	up()
	src := e.Attach("g")
	e.Publish(&backend.Message{ID: "later"})
	if d := e.One(src); d.ID != "later" {
		e.Failf("got %q, want what was published", d.ID)
	}
}

// failing expects that the Receive whose outcome waiting gets returns an error soon.
func failing(e *law.Env, waiting <-chan law.Received) {
	e.Helper()
	start := time.Now()
	r := <-waiting
	if len(r.Deliveries) > 0 || !law.Passing(r.Err) {
		e.Failf("Receive: got %d deliveries and error %v, want an error that matches %q", len(r.Deliveries), r.Err, backend.ErrUnavailable)
	}
	if took := time.Since(start); took > law.Notice+law.Hitch {
		e.Failf("Receive noticed after %v, want within %v", took, law.Notice)
	}
}

// answered expects that Receive returns without an error soon.
func answered(e *law.Env, src backend.Source) {
	e.Helper()
	start := time.Now()
	for ctx := e.Bounded(); ; {
		_, err := src.Receive(ctx, 1, 0)
		took := time.Since(start)
		if err == nil && took < law.Notice+law.Hitch {
			return
		}
		if took > law.Notice || !law.Passing(err) {
			e.Failf("Receive after the broker is up: got error %v after %v, want none within %v", err, took, law.Notice)
		}
		time.Sleep(law.Pause)
	}
}

func wellAgain(e *law.Env) {
	src := e.Attach("g")
	for range 2 {
		waiting := e.Background(e.Bounded(), src, 1)
		time.Sleep(100 * time.Millisecond)
		up := e.Down(e.Backend)
		failing(e, waiting)
		time.Sleep(100 * time.Millisecond)
		up()
		answered(e, src)
	}
	e.Publish(&backend.Message{ID: "later"})
	e.Ack(src, e.One(src))
}

func publishHeldUp(e *law.Env) {
	const wait = 300 * time.Millisecond
	src := e.Attach("g")
	e.Publish(&backend.Message{ID: "first"})
	e.Ack(src, e.One(src))
	thaw := e.Freeze(e.Backend)
	var took []time.Duration
	for i := range 3 {
		took = append(took, heldUp(e, fmt.Sprint("deadline ", i), e.Within(wait), wait))
		ctx, cancel := context.WithCancel(e.Context())
		time.AfterFunc(wait, cancel)
		took = append(took, heldUp(e, fmt.Sprint("cancelled ", i), ctx, wait))
	}
	e.Mostly(took, 100*time.Millisecond+law.Hitch, "Publish that is held up returned after its context was done,")
	thaw()
	e.Publish(&backend.Message{ID: "last"})
	seen := map[string]int{}
	for seen["last"] == 0 {
		ds := e.Receive(src, 1)
		e.Ack(src, ds...)
		for _, d := range ds {
			seen[d.ID]++
		}
	}
	for _, d := range e.ReceiveWithin(src, 10, e.Soon()) {
		seen[d.ID]++
	}
	for id, n := range seen {
		if n > 1 {
			e.Failf("got %d copies of %s, want one at most", n, id)
		}
	}
}

// heldUp publishes to a broker that does not answer. The context is done after wait. heldUp
// returns how much later Publish returned.
func heldUp(e *law.Env, id string, ctx context.Context, wait time.Duration) time.Duration {
	e.Helper()
	start := time.Now()
	err := backend.ErrorAt(e.Backend.Publish(ctx, []*backend.Message{{Topic: law.Topic, ID: id}}), 0)
	took := time.Since(start) - wait
	e.By(start, wait, "Publish that is held up returned")
	if !law.Passing(err) || !errors.Is(err, ctx.Err()) {
		e.Failf("Publish that is held up: got error %v, want one that matches %q, and %q", err, backend.ErrUnknownOutcome, ctx.Err())
	}
	if ctx.Err() == nil {
		e.Failf("Publish that is held up returned %v before its context was done", err)
	}
	return took
}

func halfOpen(e *law.Env) {
	src := e.Attach("g")
	e.Publish(&backend.Message{ID: "first"})
	e.Ack(src, e.One(src))
	waiting := e.Background(e.Bounded(), src, 10)
	time.Sleep(100 * time.Millisecond)
	end := e.Swallow(e.Backend)
	start := time.Now()
	err := backend.ErrorAt(e.Backend.Publish(e.Within(time.Second), []*backend.Message{{Topic: law.Topic, ID: "meanwhile"}}), 0)
	if took := time.Since(start); took > 2*time.Second {
		e.Failf("Publish without an answer returned after %v, want a second after its context was done, at most", took)
	}
	e.Is("Publish without an answer", err, backend.ErrUnknownOutcome)
	failing(e, waiting)
	end()
	answered(e, src)
	e.Publish(&backend.Message{ID: "last"})
	seen := map[string]int{}
	start = time.Now()
	for time.Since(start) < e.Lease+e.Soon() { // a message whose delivery was in a lost answer is redelivered
		ds := e.ReceiveWithin(src, 1, e.Lease/4)
		e.Ack(src, ds...)
		for _, d := range ds {
			seen[d.ID]++
		}
	}
	if seen["last"] != 1 || seen["meanwhile"] > 1 || len(seen) > 2 {
		e.Failf("got %v, want the last once, and the one whose outcome is unknown once at most", seen)
	}
}

func notStarved(e *law.Env) {
	const readers, turns, rounds = 50, 4, 5
	src := e.Attach("g")
	var idle []backend.Source
	for range readers {
		idle = append(idle, e.AttachAs(backend.Config{Topic: "quiet", Group: "idle"}))
	}
	measure := func(took []time.Duration) []time.Duration {
		for range rounds {
			start := time.Now()
			e.PublishN(1)
			d := e.One(src)
			e.Ack(src, d)
			took = append(took, time.Since(start))
		}
		return took
	}
	// On a busy machine all calls take longer, with and without idle readers. The law
	// measures with and without idle readers in turn, because the load of the machine
	// changes.
	var alone, among []time.Duration
	for range turns {
		alone = measure(alone)
		ctx, cancel := context.WithCancel(e.Context())
		var waiting []<-chan law.Received
		for _, s := range idle {
			waiting = append(waiting, e.Background(ctx, s, 1))
		}
		time.Sleep(e.Lease / 8)
		among = measure(among)
		cancel()
		for _, w := range waiting {
			<-w
		}
	}
	slices.Sort(alone)
	e.Mostly(among, max(50*time.Millisecond, 3*alone[len(alone)/2]), "published, received and acknowledged")
}
