package contract

import (
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var declareLaws = []law.Law{{
	ID: "C63", Name: "declare", Promise: "a topic can be declared before its first message, and again at any time, which changes nothing",
	Needs:  []law.Need{law.NeedVerb[backend.Declarer]()},
	Faults: []string{"settle-once", "closed-answers"}, Test: declare,
}}

func declare(e *law.Env) {
	e.Verb(declared(e))
	e.Must(declared(e))
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(4))
	ds := e.Receive(src, 2)
	e.Must(declared(e))
	ds = append(ds, e.Receive(src, 2)...)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("got %v, want what the topic had when it was declared again: %v", got, want)
	}
	e.Ack(src, ds...)
	late := e.Attach("late")
	e.Must(declared(e))
	e.Publish(&backend.Message{ID: "next"})
	if d := e.One(src); d.ID != "next" {
		e.Failf("got %q, want what was published after the topic was declared again", d.ID)
	}
	e.One(late)
	e.Must(e.Backend.Close())
	e.Is("Declare after Close", declared(e), backend.ErrClosed)
}

// declared declares the topic without settings.
func declared(e *law.Env) error {
	_, err := e.Verbs().Declare(e.Context(), law.Topic, backend.Declaration{})
	return err
}
