package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var receiveLaws = []law{
	{
		id: "C08", name: "at-most-max", promise: "Receive returns at most max",
		saboteurs: []string{"ignores-max"}, driver: atMostMax,
	}, {
		id: "C64", name: "max-of-none", promise: "Receive of none, or of fewer, returns at once and takes nothing",
		saboteurs: []string{"ignores-max", "waits-for-none"}, driver: maxOfNone,
	}, {
		id: "C09", name: "come-backs-first", promise: "what comes back is handed out before what is new",
		saboteurs: []string{"new-first"}, driver: comeBacksFirst,
	}, {
		id: "C10", name: "equal-due-by-position", promise: "of those that are due together when Receive begins the lower position goes first",
		saboteurs: []string{"reverses-reads"}, driver: equalDueByPosition,
	}, {
		id: "D08", name: "attempt-sequence", promise: "the attempt is 1, 2, 3, … in each group, where the backend counts",
		saboteurs: []string{"stuck-attempt", "attempt-of-all-groups"}, driver: attemptSequence,
	}, {
		id: "C11", name: "cancel-loses-nothing", promise: "no delivery is lost to a Receive that is cancelled",
		saboteurs: []string{"abandons-on-cancel", "leaves-reads-behind"}, driver: cancelLosesNothing,
	},
}

func atMostMax(e *driverEnv) {
	src := e.attach("g")
	const n = 50
	e.publishN(n)
	var got []string
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	for i := 0; len(got) < n && ctx.Err() == nil; i++ {
		got = append(got, ids(e.take(ctx, src, 1+i%7))...)
	}
	if want := idsOf(numbered("", n)); !slices.Equal(got, want) {
		e.failf("got  %v\nwant %v", got, want)
	}
}

func maxOfNone(e *driverEnv) {
	src := e.attach("g")
	e.takesNone(src)
	want := idsOf(e.publishN(2))
	e.takesNone(src)
	ds := e.receive(src, 2)
	if got := ids(ds); !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
	e.attempt(ds[0], 1)
}

// takesNone expects that a Receive that may take nothing returns at once.
func (e *driverEnv) takesNone(src backend.Source) {
	e.Helper()
	for _, max := range []int{0, -1} {
		start := time.Now()
		ds, err := src.Receive(e.bounded(), max)
		e.must(err)
		e.by(start, 0, fmt.Sprintf("Receive of at most %d returned", max))
		if len(ds) > 0 {
			e.failf("Receive of at most %d: got %v, want none", max, ids(ds))
		}
	}
}

func comeBacksFirst(e *driverEnv) {
	src := e.attach("g")
	old := e.publish(numbered("old", 2)...)
	e.receive(src, 2)
	e.publish(numbered("new", 2)...)
	time.Sleep(e.lease + e.soon())
	got := ids(e.receive(src, 4))
	if want := append(idsOf(old), idsOf(numbered("new", 2))...); !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
}

func equalDueByPosition(e *driverEnv) {
	src := e.attach("g")
	const n = 20
	want := idsOf(e.publishN(n))
	e.receive(src, n) // in one read if the broker likes, and then all are due together
	time.Sleep(e.lease + e.soon())
	if got := ids(e.receive(src, n)); !slices.Equal(got, want) {
		e.failf("got  %v\nwant %v", got, want)
	}
}

func attemptSequence(e *driverEnv) {
	one, two := e.attach("one"), e.attach("two")
	e.publishN(2)
	for want := 1; want <= 3; want++ {
		for _, d := range e.receive(one, 2) {
			e.attempt(d, want)
		}
	}
	for _, d := range e.receive(two, 2) {
		e.attempt(d, 1)
	}
}

// Each round publishes while a Receive is being cancelled. What such a Receive
// took and did not return would come back one lease later.
func cancelLosesNothing(e *driverEnv) {
	const rounds, each = 25, 4
	lease := 4 * e.lease
	src := e.attachAs(backend.Config{Group: "g", Lease: lease})
	published, got := map[string]time.Time{}, 0
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	check := func(ds []backend.Delivery) {
		for _, d := range ds {
			if took := time.Since(published[d.ID]); took >= lease || d.Attempt > 1 {
				e.failf("message %s was received after %v as attempt %d, want the first within the lease of %v (seed %d)", d.ID, took, d.Attempt, lease, seed)
			}
			got++
		}
		e.ack(src, ds...)
	}
	for round := range rounds {
		batch := numbered(string(rune('a'+round)), each)
		for _, m := range batch {
			published[m.ID] = time.Now()
		}
		ctx, cancel := context.WithTimeout(e.Context(), time.Duration(random.Int64N(int64(3*time.Millisecond))))
		errs := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			errs <- e.send(batch...)
		}()
		ds := e.take(ctx, src, each*rounds)
		cancel()
		e.must(<-errs)
		time.Sleep(time.Millisecond) // for what a read that was left behind may take
		check(ds)
	}
	for got < rounds*each {
		check(e.receive(src, 1))
	}
	e.nothing(src, e.lease/2, "all were received")
}
