package conformance

import (
	"cmp"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

var positionLaws = []law{
	{
		id: "C06", name: "position-increases", promise: "a message stored later in a topic has a greater position, as a string",
		saboteurs: []string{"decimal-positions"}, driver: positionIncreases,
	}, {
		id: "C07", name: "position-stays", promise: "a message has the position that Publish said, on every receipt in every group",
		saboteurs: []string{"position-per-receipt", "no-position"}, driver: positionStays,
	},
}

func positionIncreases(e *driverEnv) {
	src := e.attach("g")
	ms := e.publishN(1150) // past 9 to 10, 99 to 100 and 999 to 1000
	last := ""
	for _, m := range ms {
		if m.Position <= last {
			e.failf("message %s has position %q, and the one before %q", m.ID, m.Position, last)
		}
		last = m.Position
	}
	ds := e.receive(src, len(ms))
	slices.SortFunc(ms, func(a, b *backend.Message) int { return cmp.Compare(a.Position, b.Position) })
	if got, want := ids(ds), idsOf(ms); !slices.Equal(got, want) {
		e.failf("the order of receipts is not that of positions")
	}
}

func positionStays(e *driverEnv) {
	one, two := e.attach("one"), e.attach("two")
	ms := e.publishN(3)
	for _, src := range []backend.Source{one, two, one} { // the third time as redeliveries
		for i, d := range e.receive(src, len(ms)) {
			if d.Position != ms[i].Position || d.Position == "" {
				e.failf("message %s: got position %q, want that of Publish, %q", d.ID, d.Position, ms[i].Position)
			}
		}
	}
}
