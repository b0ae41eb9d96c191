package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// How a Receive that waits comes to return.
var wakeLaws = []law{
	{
		id: "D17", name: "wake-latency", promise: "a message published to an idle group is received within half a second, mostly",
		saboteurs: []string{"polls-seldom"}, driver: wakeLatency,
	}, {
		id: "C12", name: "wakes-each", promise: "if one member takes only a part, another that waits gets the rest",
		saboteurs: []string{"one-reader-at-a-time"}, driver: wakesEach,
	}, {
		id: "C49", name: "wakes-for-delays", promise: "a member that waits receives what another gives back when it is due, even if it expected nothing so soon",
		needs:     []need{needDelayer},
		saboteurs: []string{"delays-a-lease-at-least"}, driver: wakesForDelays,
	}, {
		id: "C57", name: "delay-meets-receive", promise: "what a member gives back while its own Receive begins is received at most half a second after it is due",
		needs:     []need{needDelayer},
		saboteurs: []string{"reads-miss-delays"}, driver: delayMeetsReceive,
	}, {
		id: "C50", name: "cancel-passes-on", promise: "a message whose arrival woke a member that is just cancelled goes to another that waits",
		saboteurs: []string{"leaves-reads-behind"}, driver: cancelPassesOn,
	}, {
		id: "S06", name: "cancel-fast", promise: "Receive returns within a second after its context is done",
		saboteurs: []string{"deaf-to-cancel"}, driver: cancelFast,
	},
}

// background calls Receive in the background until it brings something, or an
// error: it may return none.
func (e *driverEnv) background(ctx context.Context, src backend.Source, max int) <-chan received {
	c := make(chan received, 1)
	start := time.Now()
	e.reads.Go(func() {
		var ds []backend.Delivery
		var err error
		for len(ds) == 0 && err == nil && ctx.Err() == nil {
			ds, err = src.Receive(ctx, max)
		}
		c <- received{ds, err, time.Since(start)}
	})
	return c
}

func wakeLatency(e *driverEnv) {
	src := e.attach("g")
	var took []time.Duration
	for range 5 {
		c := e.background(e.bounded(), src, 10)
		time.Sleep(e.lease / 3)
		start := time.Now()
		e.publishN(1)
		r := <-c
		took = append(took, time.Since(start))
		e.must(r.err)
		e.ack(src, r.ds...)
	}
	e.mostly(took, 500*time.Millisecond, "received")
}

// mostly expects that of several times most were within limit: a machine may be
// busy now and then.
func (e *driverEnv) mostly(took []time.Duration, limit time.Duration, what string) {
	e.Helper()
	limit += e.grace
	slices.Sort(took)
	if median := took[len(took)/2]; median > limit {
		e.failf("%s after %v, want mostly within %v", what, took, limit)
	}
}

func wakesEach(e *driverEnv) {
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	const members = 4
	var waiting []<-chan received
	for range members {
		src := e.attachAs(backend.Config{Group: "g", Lease: 20 * e.lease})
		waiting = append(waiting, e.background(ctx, src, 1))
	}
	time.Sleep(e.lease / 3)
	start := time.Now()
	e.publishN(members)
	var got []string
	for _, c := range waiting {
		r := <-c
		e.must(r.err)
		got = append(got, ids(r.ds)...)
	}
	e.by(start, 0, "the last member received its message")
	slices.Sort(got)
	if want := idsOf(numbered("", members)); !slices.Equal(got, want) {
		e.failf("got %v, want %v, one for each member", got, want)
	}
}

func wakesForDelays(e *driverEnv) {
	one, two := e.attachAs(backend.Config{Group: "g", Lease: 5 * e.lease}), e.attach("g")
	e.publishN(1)
	d := e.one(one)
	waiting := e.background(e.bounded(), two, 1)
	time.Sleep(e.lease / 4)
	start := time.Now()
	e.verb(e.delay(one, e.lease/2, d))
	r := <-waiting
	e.must(r.err)
	e.notBefore(start, e.lease/2, "it came back")
	e.by(start, e.lease/2, "it came back")
}

// A wake-up that is lost in this race is made up for by the next Receive. So the delay
// is short, and the bound is that of the contract. One late round may be the machine's.
func delayMeetsReceive(e *driverEnv) {
	const rounds, limit = 30, 500 * time.Millisecond
	src := e.attachAs(backend.Config{Group: "g", Lease: 5 * e.lease})
	e.publishN(1)
	d := e.one(src)
	wait := min(e.lease/3, 2*time.Millisecond)
	var late []time.Duration
	for round := range rounds {
		waiting := e.background(e.bounded(), src, 1)
		time.Sleep(time.Duration(round%5) * 100 * time.Microsecond) // before the read arrives, or just after
		e.verb(e.delay(src, wait, d))
		due := time.Now().Add(wait)
		r := <-waiting
		e.must(r.err)
		if took := time.Since(due); took > limit+e.grace {
			late = append(late, took)
		}
		d = r.ds[0]
	}
	if len(late) > 1 {
		e.failf("%d of %d came later than %v after they were due: %v", len(late), rounds, limit, late)
	}
}

func cancelPassesOn(e *driverEnv) {
	long := 20 * e.lease
	one, two := e.attachAs(backend.Config{Group: "g", Lease: long}), e.attachAs(backend.Config{Group: "g", Lease: long})
	for round := range 10 {
		ctx, cancel := context.WithCancel(e.Context())
		cancelled := e.background(ctx, one, 1)
		time.Sleep(5 * time.Millisecond) // so that it is the first to wait
		waiting := e.background(e.bounded(), two, 1)
		time.Sleep(5 * time.Millisecond)
		start := time.Now()
		errs := make(chan error, 1)
		go func() { errs <- e.send(numbered("", 1)...) }()
		time.Sleep(time.Duration(round) * 100 * time.Microsecond) // before the message arrives, or just after
		cancel()
		first := <-cancelled
		e.must(<-errs)
		e.ack(one, first.ds...)
		if len(first.ds) > 0 {
			e.publishN(1) // to end the other's wait
		}
		second := <-waiting
		e.must(second.err)
		e.by(start, time.Second, "another received it")
		e.ack(two, second.ds...)
	}
}

func cancelFast(e *driverEnv) {
	src := e.attach("g")
	for range 3 {
		ctx, cancel := context.WithCancel(e.Context())
		c := e.background(ctx, src, 10)
		time.Sleep(e.lease / 5)
		start := time.Now()
		cancel()
		r := <-c
		if len(r.ds) == 0 && r.took < e.lease/5-tick {
			continue // it returned none before it was cancelled
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			e.failf("Receive returned %v after its context was done, want within a second or so", took)
		}
		if len(r.ds) != 0 || (r.err != nil && !errors.Is(r.err, context.Canceled)) {
			e.failf("got %d deliveries and error %v, want none and nil or %v", len(r.ds), r.err, context.Canceled)
		}
	}
}
