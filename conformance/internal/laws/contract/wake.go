package contract

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// wakeLaws are about the return of a Receive that waits.
var wakeLaws = []law.Law{
	{
		ID: "D17", Name: "wake-latency", Promise: "a message published to an idle group is usually received within half a second, even if its batch begins with another topic",
		Faults: []string{"publish-one-topic"}, Test: wakeLatency,
	}, {
		ID: "C12", Name: "wakes-each", Promise: "if one member takes only some of the messages, another waiting member gets the rest",
		Faults: []string{"receive-in-turn"}, Test: wakesEach,
	}, {
		ID: "C49", Name: "wakes-for-delays", Promise: "a waiting member receives a message that another member gave back when it is due, even if it expected nothing so soon",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-ignored", "delay-truncated"}, Test: wakesForDelays,
	}, {
		ID: "C57", Name: "delay-meets-receive", Promise: "a message that a member gives back while its own Receive begins is received at most half a second after it is due",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"receive-in-turn"}, Test: delayMeetsReceive,
	}, {
		ID: "C50", Name: "cancel-passes-on", Promise: "a message that wakes a member just as it is cancelled goes to another waiting member",
		Faults: []string{"receive-drops-on-cancel"}, Test: cancelPassesOn,
	}, {
		ID: "S06", Name: "cancel-fast", Promise: "Receive returns within a second after its context is done, with an error of the context or none",
		Faults: []string{"receive-deaf"}, Test: cancelFast,
	},
}

func wakeLatency(e *law.Env) {
	src := e.Attach("g")
	var took []time.Duration
	for round := range 5 {
		c := e.Background(e.Bounded(), src, 10)
		time.Sleep(min(e.Lease/3, 2*time.Second+time.Duration(round)*law.Hitch)) // a basic law is not patient
		start := time.Now()
		e.Publish(&backend.Message{Topic: "first", ID: "first"}, &backend.Message{ID: "second"})
		r := <-c
		took = append(took, time.Since(start))
		if r.Err != nil {
			e.Failf("received nothing in %v after Publish: %v", took[len(took)-1], r.Err)
		}
		e.Ack(src, r.Deliveries...)
	}
	e.Mostly(took, 500*time.Millisecond, "received")
}

func wakesEach(e *law.Env) {
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	const members = 4
	var waiting []<-chan law.Received
	for range members {
		src := e.AttachAs(backend.Config{Group: "g", Lease: 20 * e.Lease})
		waiting = append(waiting, e.Background(ctx, src, 1))
	}
	time.Sleep(e.Lease / 3)
	start := time.Now()
	e.PublishN(members)
	var got []string
	for _, c := range waiting {
		r := <-c
		e.Must(r.Err)
		got = append(got, law.IDs(r.Deliveries)...)
	}
	e.By(start, 0, "the last member received its message")
	slices.Sort(got)
	if want := law.IDsOf(law.Numbered("", members)); !slices.Equal(got, want) {
		e.Failf("got %v, want %v, one for each member", got, want)
	}
}

func wakesForDelays(e *law.Env) {
	one, two := e.AttachAs(backend.Config{Group: "g", Lease: 5 * e.Lease}), e.Attach("g")
	e.PublishN(1)
	d := e.One(one)
	waiting := e.Background(e.Bounded(), two, 1)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	e.Verb(e.Delay(one, e.Lease/2, d))
	r := <-waiting
	e.Must(r.Err)
	e.NotBefore(start, e.Lease/2, "it came back")
	e.By(start, e.Lease/2, "it came back")
}

// delayMeetsReceive checks that a waiting Receive notices a Delay. If it does not, the next
// Receive still finds the message, so only the time shows the fault. The limit is the limit
// of the contract. One late round is tolerated, because the machine may cause it.
func delayMeetsReceive(e *law.Env) {
	const rounds, limit = 30, 500 * time.Millisecond
	src := e.AttachAs(backend.Config{Group: "g", Lease: 5 * e.Lease})
	e.PublishN(1)
	d := e.One(src)
	wait := min(e.Lease/3, 2*time.Millisecond)
	var late []time.Duration
	for round := range rounds {
		waiting := e.Background(e.Bounded(), src, 1)
		time.Sleep(time.Duration(round%5) * 100 * time.Microsecond) // so that Delay comes before Receive in some rounds, and just after it in others
		e.Verb(e.Delay(src, wait, d))
		due := time.Now().Add(wait)
		r := <-waiting
		e.Must(r.Err)
		if took := time.Since(due); took > limit+e.Grace {
			late = append(late, took)
		}
		d = r.Deliveries[0]
	}
	if len(late) > 1 {
		e.Failf("%d of %d came later than %v after they were due: %v", len(late), rounds, limit, late)
	}
}

func cancelPassesOn(e *law.Env) {
	long := 20 * e.Lease
	one, two := e.AttachAs(backend.Config{Group: "g", Lease: long}), e.AttachAs(backend.Config{Group: "g", Lease: long})
	for round := range 10 {
		ctx, cancel := context.WithCancel(e.Context())
		cancelled := e.Background(ctx, one, 1)
		time.Sleep(5 * time.Millisecond) // so that member one waits before member two
		waiting := e.Background(e.Bounded(), two, 1)
		time.Sleep(5 * time.Millisecond)
		start := time.Now()
		errs := make(chan error, 1)
		go func() { errs <- e.Send(law.Numbered("", 1)...) }()
		time.Sleep(time.Duration(round) * 100 * time.Microsecond) // in early rounds the cancel comes before the message, in later rounds just after it
		cancel()
		first := <-cancelled
		e.Must(<-errs)
		e.Ack(one, first.Deliveries...)
		if len(first.Deliveries) > 0 {
			e.PublishN(1) // so that member two receives a message as well
		}
		second := <-waiting
		e.Must(second.Err)
		e.By(start, time.Second, "another received it")
		e.Ack(two, second.Deliveries...)
	}
}

func cancelFast(e *law.Env) {
	src := e.Attach("g")
	for round := range 4 {
		ctx, cancel := context.WithCancel(e.Context())
		want := context.Canceled
		if round == 3 {
			ctx, want = e.Within(e.Lease/5), context.DeadlineExceeded
		}
		c := e.Background(ctx, src, 10)
		time.Sleep(e.Lease / 5)
		start := time.Now()
		cancel()
		r := <-c
		if len(r.Deliveries) == 0 && r.Took < e.Lease/5-law.Tick {
			continue // this Receive returned without deliveries before the cancel, so it shows nothing
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			e.Failf("Receive returned %v after its context was done, want within a second or so", took)
		}
		if len(r.Deliveries) != 0 || (r.Err != nil && !errors.Is(r.Err, want)) {
			e.Failf("got %d deliveries and error %v, want none and nil or %v", len(r.Deliveries), r.Err, want)
		}
		if class := backend.Class(r.Err); class != nil {
			e.Failf("got error %v, which matches %v, so the bus takes the end of the context for a failure", r.Err, class)
		}
	}
}
