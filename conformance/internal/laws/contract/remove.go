package contract

import (
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var removeLaws = []law.Law{
	{
		ID: "C65", Name: "remove", Promise: "Remove takes exactly the named messages out of a topic, and a second time changes nothing",
		Needs:  []law.Need{law.NeedVerb[backend.Remover](), law.NeedVerb[backend.Reader]()},
		Faults: []string{"remove-ignored", "settle-once", "read-from-included"}, Test: remove,
	}, {
		ID: "C66", Name: "remove-in-groups", Promise: "no group is delivered a removed message, except with ErrGone, whether it was unread, held or delayed; what is held may be settled",
		Needs:  []law.Need{law.NeedVerb[backend.Remover](), law.NeedDelayer},
		Faults: []string{"remove-ignored"}, Test: removeInGroups,
	}, {
		ID: "C67", Name: "remove-unknown-topic", Promise: "Remove from a topic that does not exist is ErrGone",
		Needs:  []law.Need{law.NeedVerb[backend.Remover]()},
		Faults: []string{"errors-hidden"}, Test: removeUnknownTopic,
	},
}

// removes calls Remove with the positions of ms, and fails the law if Remove fails.
func removes(e *law.Env, ms ...*backend.Message) {
	e.Helper()
	positions := make([]string, len(ms))
	for i, m := range ms {
		positions[i] = m.Position
	}
	v := e.Verbs()
	e.Verb(v.Remove(e.Context(), law.Topic, positions))
}

func remove(e *law.Env) {
	e.Attach("g") // so that the topic keeps its messages, and the group has Stats
	ms := e.PublishN(10)
	removes(e)
	reads(e, "", 100, ms)
	removes(e, ms[4], ms[0])
	left := slices.Concat(ms[1:4], ms[5:])
	reads(e, "", 100, left)
	removes(e, ms[0], ms[4], ms[5])
	left = slices.Concat(ms[1:4], ms[6:])
	reads(e, "", 100, left)
	reads(e, ms[0].Position, 2, ms[1:3]) // after a position without a message
	reads(e, ms[4].Position, 100, ms[6:])
	depth(e, "after removals")
	reads(e, "", 4, left[:4])
	reads(e, ms[3].Position, 100, ms[6:])
	reads(e, ms[3].Position, 1, ms[6:7]) // no end of the topic, although the next two are removed
	more := e.Publish(law.Numbered("more-", 2)...)
	reads(e, ms[9].Position, 100, more)
	removes(e, more...)
	removes(e, more...)
	reads(e, "", 100, left)
	depth(e, "after messages were removed twice")
}

func removeInGroups(e *law.Env) {
	src := e.Attach("g")
	ms := e.PublishN(8)
	ds := e.Receive(src, 4)
	e.Must(e.Delay(src, e.Lease/4, ds[1], ds[2]))
	removes(e, ms[0], ms[1], ms[4], ms[6]) // the first message is held, the second is delayed, and no member has received the others
	e.Ack(src, ds[0], ds[3])
	var got []string
	for until := time.Now().Add(e.Patience()); len(got) < 3 && time.Now().Before(until); {
		d, err := src.Receive(e.Bounded(), 8, 0)
		if err != nil {
			e.Failf("Receive: got error %v, want none", err)
		}
		for i := range d {
			switch {
			case d[i].Err == nil:
				got = append(got, d[i].ID)
			case !errors.Is(d[i].Err, backend.ErrGone):
				e.Failf("a removed message came with the error %v, want ErrGone", d[i].Err)
			}
			e.Ack(src, d[i])
		}
	}
	slices.Sort(got)
	if want := law.IDsOf([]*backend.Message{ms[2], ms[5], ms[7]}); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
}

func removeUnknownTopic(e *law.Env) {
	v := e.Verbs()
	err := v.Remove(e.Context(), "unknown", nil)
	e.Is("Remove", claimed(e, err), backend.ErrGone)
}
