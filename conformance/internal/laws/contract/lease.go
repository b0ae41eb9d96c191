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
		ID: "C20", Name: "abandoned-comes-back", Promise: "an unsettled message is due again after one lease, not before and soon after",
		Faults: []string{"lease-long"}, Test: abandonedComesBack,
	}, {
		ID: "C21", Name: "lease-of-the-holder", Promise: "a member with a shorter lease does not take over a delivery before its holder's lease has expired",
		Faults: []string{"lease-of-the-group"}, Test: leaseOfTheHolder,
	}, {
		ID: "C22", Name: "lease-of-the-taker", Promise: "a member with a longer lease takes over an abandoned message no later than the longest lease in the group",
		Faults: []string{"lease-long"}, Test: leaseOfTheTaker,
	}, {
		ID: "C23", Name: "close-keeps-leases", Promise: "what a member held when it was closed goes to another member when the lease has expired, not before",
		Faults: []string{"close-settles"}, Test: closeKeepsLeases,
	}, {
		ID: "C60", Name: "lease-refused", Promise: "a zero or negative lease is refused, and no group is created",
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

var extendLaws = []law.Law{
	{
		ID: "L01", Name: "extend", Promise: "an extended delivery goes to nobody else",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"extend-ignored"}, Test: extend,
	}, {
		ID: "C27", Name: "extend-restarts", Promise: "an extended delivery is due one lease of its member after the extension, not before and soon after, and no other delivery is extended with it",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"extend-ignored"}, Test: extendRestarts,
	}, {
		ID: "C28", Name: "extend-counts-not", Promise: "extending does not count as an attempt",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"receive-miscounts"}, Test: extendCountsNot,
	},
}

func extend(e *law.Env) {
	one, two := e.Attach("g"), e.Attach("g")
	e.PublishN(3)
	ds := e.Receive(one, 3)
	for range 4 {
		e.Nothing(two, e.Lease/2, "all are extended")
		e.Verb(e.Extend(one, ds...))
	}
	e.Ack(one, ds...)
	e.Nothing(two, 2*e.Lease, "all are acknowledged")
}

func extendRestarts(e *law.Env) {
	two, one := e.AttachAs(backend.Config{Group: "g", Lease: e.Lease / 2}), e.Attach("g")
	e.PublishN(2)
	ds := e.Receive(one, 2)
	received := time.Now()
	time.Sleep(e.Lease / 2)
	start := time.Now()
	e.Verb(e.Extend(one, ds[0]))
	d := e.One(two)
	if d.ID != ds[1].ID {
		e.Failf("got message %s, want %s, which was not extended", d.ID, ds[1].ID)
	}
	e.By(received, e.Lease, "what was not extended came back")
	e.Ack(two, d)
	e.One(two)
	e.NotBefore(start, e.Lease, "it came back")
	e.By(start, e.Lease, "it came back")
}

func extendCountsNot(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	for range 3 {
		e.Verb(e.Extend(src, d))
	}
	e.Attempt(e.One(src), 2)
}
