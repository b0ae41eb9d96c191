package contract

import (
	"cmp"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var positionLaws = []law.Law{
	{
		ID: "C06", Name: "position-increases", Promise: "a message stored later in a topic has a greater position, as a string",
		Saboteurs: []string{"decimal-positions"}, Test: positionIncreases,
	}, {
		ID: "C07", Name: "position-stays", Promise: "a message has the position that Publish said, on every receipt in every group",
		Saboteurs: []string{"position-per-receipt", "no-position"}, Test: positionStays,
	},
}

func positionIncreases(e *law.Env) {
	const n = 1150 // so that the decimal numbers in positions get longer: at 10, 100 and 1000
	src := e.AttachAs(backend.Config{Group: "g", MaxInFlight: n})
	ms := e.PublishN(n)
	last := ""
	for _, m := range ms {
		if m.Position <= last {
			e.Failf("message %s has position %q, and the one before %q", m.ID, m.Position, last)
		}
		last = m.Position
	}
	ds := e.Receive(src, len(ms))
	slices.SortFunc(ms, func(a, b *backend.Message) int { return cmp.Compare(a.Position, b.Position) })
	if got, want := law.IDs(ds), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("the order of receipts is not that of positions")
	}
}

func positionStays(e *law.Env) {
	one, two := e.Attach("one"), e.Attach("two")
	ms := e.PublishN(3)
	for _, src := range []backend.Source{one, two, one} { // member one receives the messages again, as redeliveries
		for i, d := range e.Receive(src, len(ms)) {
			if d.Position != ms[i].Position || d.Position == "" {
				e.Failf("message %s: got position %q, want that of Publish, %q", d.ID, d.Position, ms[i].Position)
			}
		}
	}
}
