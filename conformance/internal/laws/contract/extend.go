package contract

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var extendLaws = []law.Law{
	{
		ID: "L01", Name: "extend", Promise: "an extended delivery goes to nobody else",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"extend-ignored"}, Test: extend,
	}, {
		ID: "C27", Name: "extend-restarts", Promise: "an extended delivery is due one lease of its member after it was extended: not before, and soon after, and no other is extended with it",
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
