package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var leaseLaws = []law{
	{
		id: "C20", name: "abandoned-comes-back", promise: "what is not settled is due again after one lease, not before and soon after",
		saboteurs: []string{"short-leases", "long-leases"}, driver: abandonedComesBack,
	}, {
		id: "C21", name: "lease-of-the-holder", promise: "a member with a shorter lease does not take a delivery before the lease of its holder has passed",
		saboteurs: []string{"shortest-lease-counts"}, driver: leaseOfTheHolder,
	}, {
		id: "C22", name: "lease-of-the-taker", promise: "a member with a longer lease takes what was abandoned no later than one of the longest leases in the group",
		saboteurs: []string{"long-leases", "short-leases"}, driver: leaseOfTheTaker,
	}, {
		id: "C23", name: "close-keeps-leases", promise: "what a member held when it was closed goes to another when the lease has passed, not before",
		saboteurs: []string{"close-settles", "close-releases"}, driver: closeKeepsLeases,
	}, {
		id: "C60", name: "lease-refused", promise: "a lease of zero or less is refused, and makes no group",
		saboteurs: []string{"corrects-leases", "refuses-too-late"}, driver: leaseRefused,
	},
}

func abandonedComesBack(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	e.publishN(1)
	earliest := time.Now() // of the moments at which it may have been handed out
	e.attempt(e.one(one), 1)
	latest := time.Now()
	for i, src := range []backend.Source{two, one} {
		d := e.one(src)
		e.notBefore(earliest, e.lease, "it came back")
		e.by(latest, e.lease, "it came back")
		e.attempt(d, i+2)
		earliest, latest = earliest.Add(e.lease), time.Now()
	}
}

func leaseOfTheHolder(e *driverEnv) {
	long, short := 3*e.lease, e.lease/2
	holder := e.attachAs(backend.Config{Group: "g", Lease: long})
	taker := e.attachAs(backend.Config{Group: "g", Lease: short})
	e.publishN(1)
	start := time.Now()
	e.one(holder)
	e.one(taker)
	e.notBefore(start, long, "it was taken")
	e.by(start, long, "it was taken")
}

// A broker may know one lease for a group, which must then be the longest.
func leaseOfTheTaker(e *driverEnv) {
	long := 3 * e.lease
	taker := e.attachAs(backend.Config{Group: "g", Lease: long})
	holder := e.attachAs(backend.Config{Group: "g", Lease: e.lease})
	e.publishN(1)
	start := time.Now()
	e.one(holder)
	e.one(taker)
	e.notBefore(start, e.lease, "it was taken")
	e.by(start, long, "it was taken")
}

func closeKeepsLeases(e *driverEnv) {
	holder, other := e.attach("g"), e.attach("g")
	e.publishN(2)
	start := time.Now()
	e.receive(holder, 2)
	e.must(holder.Close())
	ds := e.receive(other, 1)
	e.notBefore(start, e.lease, "the first was taken")
	ds = append(ds, e.receive(other, 1)...)
	e.by(start, e.lease, "the last was taken")
	e.ack(other, ds...)
}

func leaseRefused(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps"})
	want := idsOf(e.publishN(3))
	for _, lease := range []time.Duration{0, -1, -e.lease} {
		e.refused(backend.Config{Group: "g", Start: backend.StartLatest, Lease: lease}, fmt.Sprintf("Attach with a lease of %v", lease))
	}
	if got := ids(e.receive(e.attach("g"), 3)); !slices.Equal(got, want) {
		e.failf("got %v, want all of a group that was not made before: %v", got, want)
	}
}
