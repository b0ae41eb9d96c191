package contract

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var readLaws = []law.Law{
	{
		ID: "C34", Name: "read", Promise: "Read returns what a topic keeps after a position, oldest first, and no group notices",
		Needs:     []law.Need{law.NeedVerb[backend.Reader]()},
		Saboteurs: []string{"reads-from-included", "reads-settle", "reads-backwards", "reads-bare", "reads-share-memory", "reads-pages-of-bytes"}, Test: read,
	}, {
		ID: "C35", Name: "read-waits-not", Promise: "Read returns none at the end, at once",
		Needs:     []law.Need{law.NeedVerb[backend.Reader]()},
		Saboteurs: []string{"reads-wait"}, Test: readWaitsNot,
	}, {
		ID: "C36", Name: "read-unknown-topic", Promise: "Read of a topic that does not exist is ErrGone",
		Needs:     []law.Need{law.NeedVerb[backend.Reader]()},
		Saboteurs: []string{"shrugs"}, Test: readUnknownTopic,
	},
}

// reads calls Read, and expects that it returns the messages want.
func reads(e *law.Env, from string, max int, want []*backend.Message) {
	e.Helper()
	v := e.Verbs()
	got, err := v.Read(e.Context(), law.Topic, from, max)
	e.Verb(err)
	if len(got) != len(want) {
		e.Failf("Read from %q of at most %d: got %d messages, want %d", from, max, len(got), len(want))
	}
	for i := range got {
		same(e, &got[i], want[i])
		copy(got[i].Payload, "changed by its reader")
	}
}

func read(e *law.Env) {
	src := e.Attach("g")
	ms := law.Numbered("", 10)
	for _, m := range ms {
		m.Key, m.Headers = "key", backend.Headers{{Name: "name", Value: m.ID}}
	}
	e.Publish(ms...)
	reads(e, "", 100, ms)
	reads(e, "", 3, ms[:3])
	reads(e, ms[2].Position, 4, ms[3:7])
	reads(e, ms[6].Position, 4, ms[7:])
	reads(e, ms[9].Position, 4, nil)
	ds := e.Receive(src, 10)
	if got, want := law.IDs(ds), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
	for _, d := range ds {
		e.Attempt(d, 1)
	}
	reads(e, "", 100, ms)
	size := 1 << 20
	if limit := e.Limits.Payload; limit > 0 {
		size = min(size, limit-len("large"))
	}
	large := e.Publish(&backend.Message{ID: "large", Payload: make([]byte, size)})
	reads(e, ms[9].Position, 100, large)
}

func readWaitsNot(e *law.Env) {
	ms := e.PublishN(1)
	start := time.Now()
	reads(e, ms[0].Position, 10, nil)
	e.By(start, 0, "Read returned")
}

func readUnknownTopic(e *law.Env) {
	v := e.Verbs()
	_, err := v.Read(e.Context(), "unknown", "", 10)
	e.Is("Read", claimed(e, err), backend.ErrGone)
}
