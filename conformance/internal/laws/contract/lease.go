package contract

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var leaseLaws = []law.Law{
	{
		ID: "C20", Name: "abandoned-comes-back", Promise: "what is not settled is due again after one lease, not before and soon after",
		Faults: []string{"lease-long"}, Test: abandonedComesBack,
	}, {
		ID: "C21", Name: "lease-of-the-holder", Promise: "a member with a shorter lease does not take a delivery before the lease of its holder has passed",
		Faults: []string{"lease-of-the-group"}, Test: leaseOfTheHolder,
	}, {
		ID: "C22", Name: "lease-of-the-taker", Promise: "a member with a longer lease takes what was abandoned no later than one of the longest leases in the group",
		Faults: []string{"lease-long"}, Test: leaseOfTheTaker,
	}, {
		ID: "C23", Name: "close-keeps-leases", Promise: "what a member held when it was closed goes to another when the lease has passed, not before",
		Faults: []string{"close-settles"}, Test: closeKeepsLeases,
	}, {
		ID: "C60", Name: "lease-refused", Promise: "a lease of zero or less is refused, and makes no group",
		Faults: []string{"attach-creates-first"}, Test: leaseRefused,
	},
}

func abandonedComesBack(e *law.Env) {
	one, two := e.Attach("g"), e.Attach("g")
	e.PublishN(1)
	earliest := time.Now() // earliest and latest are bounds of the moment when the message is delivered
	e.Attempt(e.One(one), 1)
	latest := time.Now()
	for i, src := range []backend.Source{two, one} {
		d := e.One(src)
		e.NotBefore(earliest, e.Lease, "it came back")
		e.By(latest, e.Lease, "it came back")
		e.Attempt(d, i+2)
		earliest, latest = earliest.Add(e.Lease), time.Now()
	}
}

func leaseOfTheHolder(e *law.Env) {
	long, short := 3*e.Lease, e.Lease/2
	holder := e.AttachAs(backend.Config{Group: "g", Lease: long})
	taker := e.AttachAs(backend.Config{Group: "g", Lease: short})
	e.PublishN(1)
	start := time.Now()
	e.One(holder)
	e.One(taker)
	e.NotBefore(start, long, "it was taken")
	e.By(start, long, "it was taken")
}

// leaseOfTheTaker checks when a message is redelivered if its holder has a shorter lease
// than the member that takes it. A broker may have only one lease for a group: the longest
// lease of the members.
func leaseOfTheTaker(e *law.Env) {
	long := 3 * e.Lease
	taker := e.AttachAs(backend.Config{Group: "g", Lease: long})
	holder := e.AttachAs(backend.Config{Group: "g", Lease: e.Lease})
	e.PublishN(1)
	start := time.Now()
	e.One(holder)
	e.One(taker)
	e.NotBefore(start, e.Lease, "it was taken")
	e.By(start, long, "it was taken")
}

func closeKeepsLeases(e *law.Env) {
	holder, other := e.Attach("g"), e.Attach("g")
	e.PublishN(2)
	start := time.Now()
	e.Receive(holder, 2)
	e.Must(holder.Close())
	ds := e.Receive(other, 1)
	e.NotBefore(start, e.Lease, "the first was taken")
	ds = append(ds, e.Receive(other, 1)...)
	e.By(start, e.Lease, "the last was taken")
	e.Ack(other, ds...)
}

func leaseRefused(e *law.Env) {
	e.AttachAs(backend.Config{Group: "keeps"})
	want := law.IDsOf(e.PublishN(3))
	for _, lease := range []time.Duration{0, -1, -e.Lease} {
		refused(e, backend.Config{Group: "g", Start: backend.StartLatest, Lease: lease}, fmt.Sprintf("Attach with a lease of %v", lease))
	}
	if got := law.IDs(e.Receive(e.Attach("g"), 3)); !slices.Equal(got, want) {
		e.Failf("got %v, want all of a group that was not made before: %v", got, want)
	}
}
