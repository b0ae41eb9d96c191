package conformance

import (
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

var declareLaws = []law{{
	id: "C63", name: "declare", promise: "a topic can be declared before its first message, and again at any time, which changes nothing",
	needs:     []need{needDeclarer},
	saboteurs: []string{"declares-anew", "declares-once", "declares-for-ever"}, driver: declare,
}}

func declare(e *driverEnv) {
	v := e.verbs()
	e.verb(v.Declare(e.Context(), topic))
	e.must(v.Declare(e.Context(), topic))
	src := e.attach("g")
	want := idsOf(e.publishN(4))
	ds := e.receive(src, 2)
	e.must(v.Declare(e.Context(), topic))
	ds = append(ds, e.receive(src, 2)...)
	if got := ids(ds); !slices.Equal(got, want) {
		e.failf("got %v, want what the topic had when it was declared again: %v", got, want)
	}
	e.ack(src, ds...)
	late := e.attach("late")
	e.must(v.Declare(e.Context(), topic))
	e.publish(&backend.Message{ID: "next"})
	if d := e.one(src); d.ID != "next" {
		e.failf("got %q, want what was published after the topic was declared again", d.ID)
	}
	e.one(late)
	e.must(e.b.Close())
	e.is("Declare after Close", v.Declare(e.Context(), topic), backend.ErrClosed)
}
