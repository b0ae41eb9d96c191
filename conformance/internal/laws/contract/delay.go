package contract

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var delayLaws = []law.Law{
	{
		ID: "T01", Name: "delay", Promise: "a delayed message is due after the delay, never earlier and soon after",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-truncated", "delay-ignored"}, Test: delay,
	}, {
		ID: "T07", Name: "short-delay", Promise: "a delay that is not a whole number of milliseconds is never shortened",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-truncated"}, Test: shortDelay,
	}, {
		ID: "T03", Name: "long-delay", Promise: "a delay may be many leases long, or as long as a time.Duration can express",
		Needs:  []law.Need{law.NeedDelayer, law.NeedLongDelay},
		Faults: []string{"delay-capped"}, Test: longDelay,
	}, {
		ID: "D04", Name: "delay-in-the-group", Promise: "a delay in one group does not affect other groups",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-publishes"}, Test: delayInTheGroup,
	}, {
		ID: "T04", Name: "delay-blocks-nobody", Promise: "other messages flow while some are delayed",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-ignored"}, Test: delayBlocksNobody,
	}, {
		ID: "C24", Name: "delay-order", Promise: "of all messages that are due, those with the lowest positions are received first, in order, whatever their delays were, with no new ones in between",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"receive-reverses"}, Test: delayOrder,
	},
}

// delayEndLaws are about a delayed message whose member has left, and about the attempt
// number of a delayed message.
var delayEndLaws = []law.Law{
	{
		ID: "T06", Name: "delay-outlives-member", Promise: "a delayed message is redelivered when it is due even if the member that delayed it is gone",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"close-settles"}, Test: delayOutlivesMember,
	}, {
		ID: "C25", Name: "delay-counts", Promise: "a delay counts as an attempt if the backend counts attempts",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-inverts-refunds", "receive-miscounts"}, Test: delayCounts,
	}, {
		ID: "C26", Name: "delay-refund", Promise: "a delay with Refund does not count as an attempt",
		Needs:  []law.Need{law.NeedDelayer, law.NeedRefund},
		Faults: []string{"delay-inverts-refunds"}, Test: delayRefund,
	},
}

func delay(e *law.Env) {
	one, two := e.Attach("g"), e.Attach("g")
	e.PublishN(1)
	for _, wait := range []time.Duration{0, e.Lease / 2, 3 * e.Lease, -time.Second} {
		d := e.One(one)
		start := time.Now()
		e.Verb(e.Delay(one, wait, d))
		d = e.One(two) // member two waits in Receive before the message is due
		e.NotBefore(start, wait, fmt.Sprintf("delayed for %v, it came back", wait))
		e.By(start, max(wait, 0), fmt.Sprintf("delayed for %v, it came back", wait))
		e.Verb(e.Delay(two, 0, d))
	}
}

// shortDelay gives back messages for parts of a millisecond. It does not subtract [law.Tick],
// because a backend that rounds must round up. Calls take a part of the delay, so many
// rounds are needed to see a delay that ends too early.
func shortDelay(e *law.Env) {
	const messages, rounds = 2, 30
	one, two := e.Attach("g"), e.Attach("g")
	e.PublishN(messages)
	ds := e.Receive(one, messages)
	for round := range rounds {
		wait := []time.Duration{700 * time.Microsecond, 1500 * time.Microsecond, 2999 * time.Microsecond}[round%3]
		start := time.Now()
		e.Verb(e.Delay(one, wait, ds...))
		ds = ds[:0]
		for len(ds) < messages {
			ds = append(ds, e.One(two)) // member two waits in Receive before the message is due
			if took := time.Since(start); took < wait {
				e.Failf("delayed for %v, it came back after %v", wait, took)
			}
		}
		one, two = two, one
	}
}

func longDelay(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	start := time.Now()
	wait := 5 * e.Lease
	e.Verb(e.Delay(src, wait, d))
	for _, never := range []time.Duration{365 * 24 * time.Hour, math.MaxInt64} {
		e.Publish(&backend.Message{ID: never.String()})
		e.Verb(e.Delay(src, longest(e, never), e.One(src)))
	}
	e.Nothing(src, wait-e.Lease, "all are delayed")
	e.One(src)
	e.NotBefore(start, wait, "it came back")
	e.By(start, wait, "it came back")
}

// longest returns d, but no more than the longest delay that the backend offers.
func longest(e *law.Env, d time.Duration) time.Duration {
	if e.Limits.Delay > 0 {
		return min(d, e.Limits.Delay)
	}
	return d
}

func delayInTheGroup(e *law.Env) {
	one, two := e.Attach("one"), e.Attach("two")
	e.PublishN(2)
	ds := e.Receive(one, 2)
	e.Verb(e.Delay(one, e.Lease, ds...))
	got := e.Receive(two, 2)
	for _, d := range got {
		e.Attempt(d, 1)
	}
	e.Ack(two, got...)
	e.Ack(one, e.Receive(one, 2)...)
	e.Nothing(two, e.Lease, "this group has settled both")
	e.Nothing(one, e.Lease/4, "this group has settled both")
}

func delayBlocksNobody(e *law.Env) {
	src := e.Attach("g")
	const delayed, wait = 20, 3
	e.Publish(law.Numbered("delayed", delayed)...)
	start := time.Now()
	e.Verb(e.Delay(src, wait*e.Lease, e.Receive(src, delayed)...))
	want := law.IDsOf(e.Publish(law.Numbered("next", 5)...))
	published := time.Now()
	ds := e.Receive(src, 5)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("got %v, want what is not delayed: %v", got, want)
	}
	e.By(published, 0, "what was published next was received")
	e.Ack(src, ds...)
	e.Receive(src, delayed)
	e.NotBefore(start, wait*e.Lease, "what was delayed came back")
}

// delayOrder checks the order of many delayed messages that become due, more than a driver
// may ask its broker for in one call. The law acknowledges a third of them before they are
// due, so the backend must remove these from the middle of its order. A few messages are
// due much later.
func delayOrder(e *law.Env) {
	const n, later = 600, 20
	src := e.Unconfirmed("g") // the law acknowledges deliveries that it gave back
	v, _ := backend.As[backend.Delayer](src)
	e.PublishN(n)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var ds []backend.Delayed
	for _, d := range e.Receive(src, n) {
		ds = append(ds, backend.Delayed{Delivery: d, For: time.Duration(random.IntN(20)) * e.Lease / 10, Refund: random.IntN(2) == 0})
	}
	random.Shuffle(n, func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	for i := range later {
		ds[i].For = longest(e, 20*e.Lease)
	}
	for some := range slices.Chunk(ds, cmp.Or(e.Limits.Batch, n)) {
		e.Verb(v.Delay(e.Context(), some))
	}
	var want []string
	for i, d := range ds[later:] {
		if i%3 == 0 {
			e.Ack(src, d.Delivery)
		} else {
			want = append(want, d.ID)
		}
	}
	slices.Sort(want)
	want = append(want, law.IDsOf(e.Publish(law.Numbered("new", 5)...))...)
	time.Sleep(2*e.Lease + e.Soon())
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		got = append(got, law.IDs(e.Take(ctx, src, min(1+random.IntN(100), len(want)-len(got))))...)
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			e.Failf("from delivery %d on (seed %d)\ngot  %v\nwant %v", i, seed, got[i:min(i+20, len(got))], want[i:min(i+20, len(want))])
		}
	}
}

func delayOutlivesMember(e *law.Env) {
	gone, other := e.Attach("g"), e.Attach("g")
	e.PublishN(1)
	start := time.Now()
	e.Verb(e.Delay(gone, 2*e.Lease, e.One(gone)))
	e.Must(gone.Close())
	e.One(other)
	e.NotBefore(start, 2*e.Lease, "it came back")
	e.By(start, 2*e.Lease, "it came back")
}

func delayCounts(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	for want := 1; want <= 300; want++ { // more than a byte can count
		d := e.One(src)
		e.Attempt(d, want)
		e.Verb(e.Delay(src, 0, d))
	}
}

func delayRefund(e *law.Env) {
	src := e.Attach("g")
	v, _ := backend.As[backend.Delayer](src)
	e.PublishN(1)
	for i, want := range []int{1, 1, 1, 2, 2} {
		d := e.One(src)
		e.Attempt(d, want)
		e.Verb(v.Delay(e.Context(), []backend.Delayed{{Delivery: d, Refund: i != 2}}))
	}
}
