package conformance

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var delayLaws = []law{
	{
		id: "T01", name: "delay", promise: "a delayed message is due after the delay: never earlier, and soon after",
		needs:     []need{needDelayer},
		saboteurs: []string{"delays-shorter", "delays-longer", "ignores-delays"}, driver: delay,
	}, {
		id: "T03", name: "long-delay", promise: "a delay may be many leases long",
		needs:     []need{needDelayer, needLongDelay},
		saboteurs: []string{"caps-delays"}, driver: longDelay,
	}, {
		id: "D04", name: "delay-in-the-group", promise: "a delay in one group is not seen by another",
		needs:     []need{needDelayer},
		saboteurs: []string{"delays-by-publishing"}, driver: delayInTheGroup,
	}, {
		id: "T04", name: "delay-blocks-nobody", promise: "others flow while messages are delayed",
		needs:     []need{needDelayer},
		saboteurs: []string{"waits-for-delayed"}, driver: delayBlocksNobody,
	}, {
		id: "C24", name: "delay-order", promise: "of all that is due the lowest positions are received first, in order, whatever their delays were, and nothing new in between",
		needs:     []need{needDelayer},
		saboteurs: []string{"first-due-first", "new-first"}, driver: delayOrder,
	},
}

// Who gave a message back, and what that counts.
var delayEndLaws = []law{
	{
		id: "T06", name: "delay-outlives-member", promise: "a delayed message comes back when it is due even if the member that delayed it is gone",
		needs:     []need{needDelayer},
		saboteurs: []string{"delays-die-with-member"}, driver: delayOutlivesMember,
	}, {
		id: "C25", name: "delay-counts", promise: "a delay counts as an attempt, where the backend counts",
		needs:     []need{needDelayer},
		saboteurs: []string{"refunds-unasked"}, driver: delayCounts,
	}, {
		id: "C26", name: "delay-refund", promise: "a delay with Refund does not count as an attempt",
		needs:     []need{needDelayer, needRefund},
		saboteurs: []string{"ignores-refunds"}, driver: delayRefund,
	},
}

func delay(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	e.publishN(1)
	for _, wait := range []time.Duration{0, e.lease / 2, 3 * e.lease, -time.Second} {
		d := e.one(one)
		start := time.Now()
		e.verb(e.delay(one, wait, d))
		d = e.one(two) // which waits already when it is due
		e.notBefore(start, wait, fmt.Sprintf("delayed for %v, it came back", wait))
		e.by(start, max(wait, 0), fmt.Sprintf("delayed for %v, it came back", wait))
		e.verb(e.delay(two, 0, d))
	}
}

func longDelay(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	d := e.one(src)
	start := time.Now()
	wait := 5 * e.lease
	e.verb(e.delay(src, wait, d))
	e.publish(&backend.Message{ID: "next year"})
	e.verb(e.delay(src, e.longest(365*24*time.Hour), e.one(src)))
	e.nothing(src, wait-e.lease, "both are delayed")
	e.one(src)
	e.notBefore(start, wait, "it came back")
	e.by(start, wait, "it came back")
}

// longest returns d, or what the backend offers.
func (e *driverEnv) longest(d time.Duration) time.Duration {
	if e.limits.Delay > 0 {
		return min(d, e.limits.Delay)
	}
	return d
}

func delayInTheGroup(e *driverEnv) {
	one, two := e.attach("one"), e.attach("two")
	e.publishN(2)
	ds := e.receive(one, 2)
	e.verb(e.delay(one, e.lease, ds...))
	got := e.receive(two, 2)
	for _, d := range got {
		e.attempt(d, 1)
	}
	e.ack(two, got...)
	e.ack(one, e.receive(one, 2)...)
	e.nothing(two, e.lease, "this group has settled both")
	e.nothing(one, e.lease/4, "this group has settled both")
}

func delayBlocksNobody(e *driverEnv) {
	src := e.attach("g")
	const delayed, wait = 20, 3
	e.publish(numbered("delayed", delayed)...)
	start := time.Now()
	e.verb(e.delay(src, wait*e.lease, e.receive(src, delayed)...))
	want := idsOf(e.publish(numbered("next", 5)...))
	published := time.Now()
	ds := e.receive(src, 5)
	if got := ids(ds); !slices.Equal(got, want) {
		e.failf("got %v, want what is not delayed: %v", got, want)
	}
	e.by(published, 0, "what was published next was received")
	e.ack(src, ds...)
	e.receive(src, delayed)
	e.notBefore(start, wait*e.lease, "what was delayed came back")
}

// Many messages are due, more than a driver may ask its broker for at once. The law
// acknowledges a third of the delayed messages before they are due, so that the backend
// has to remove them from the middle of its order. A few messages are due much later.
func delayOrder(e *driverEnv) {
	const n, later = 600, 20
	src := e.unconfirmed("g") // the law acknowledges deliveries that it gave back
	v, _ := backend.As[backend.Delayer](src)
	e.publishN(n)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var ds []backend.Delayed
	for _, d := range e.receive(src, n) {
		ds = append(ds, backend.Delayed{Delivery: d, For: time.Duration(random.IntN(20)) * e.lease / 10, Refund: random.IntN(2) == 0})
	}
	random.Shuffle(n, func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	for i := range later {
		ds[i].For = e.longest(20 * e.lease)
	}
	for some := range slices.Chunk(ds, cmp.Or(e.limits.Batch, n)) {
		e.verb(v.Delay(e.Context(), some))
	}
	var want []string
	for i, d := range ds[later:] {
		if i%3 == 0 {
			e.ack(src, d.Delivery)
		} else {
			want = append(want, d.ID)
		}
	}
	slices.Sort(want)
	want = append(want, idsOf(e.publish(numbered("new", 5)...))...)
	time.Sleep(2*e.lease + e.soon())
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		got = append(got, ids(e.take(ctx, src, min(1+random.IntN(100), len(want)-len(got))))...)
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			e.failf("from delivery %d on (seed %d)\ngot  %v\nwant %v", i, seed, got[i:min(i+20, len(got))], want[i:min(i+20, len(want))])
		}
	}
}

func delayOutlivesMember(e *driverEnv) {
	gone, other := e.attach("g"), e.attach("g")
	e.publishN(1)
	start := time.Now()
	e.verb(e.delay(gone, 2*e.lease, e.one(gone)))
	e.must(gone.Close())
	e.one(other)
	e.notBefore(start, 2*e.lease, "it came back")
	e.by(start, 2*e.lease, "it came back")
}

func delayCounts(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	for want := 1; want <= 4; want++ {
		d := e.one(src)
		e.attempt(d, want)
		e.verb(e.delay(src, 0, d))
	}
}

func delayRefund(e *driverEnv) {
	src := e.attach("g")
	v, _ := backend.As[backend.Delayer](src)
	e.publishN(1)
	for i, want := range []int{1, 1, 1, 2, 2} {
		d := e.one(src)
		e.attempt(d, want)
		e.verb(v.Delay(e.Context(), []backend.Delayed{{Delivery: d, Refund: i != 2}}))
	}
}
