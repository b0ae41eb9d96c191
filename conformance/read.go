package conformance

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var readLaws = []law{
	{
		ID: "C34", Name: "read", Promise: "Read returns what a topic keeps after a position, oldest first, and no group notices",
		Needs:     []need{needReader},
		Saboteurs: []string{"reads-from-included", "reads-settle", "reads-backwards", "reads-bare", "reads-share-memory"}, Test: read,
	}, {
		ID: "C35", Name: "read-waits-not", Promise: "Read returns none at the end, at once",
		Needs:     []need{needReader},
		Saboteurs: []string{"reads-wait"}, Test: readWaitsNot,
	}, {
		ID: "C36", Name: "read-unknown-topic", Promise: "Read of a topic that does not exist is ErrGone",
		Needs:     []need{needReader},
		Saboteurs: []string{"shrugs"}, Test: readUnknownTopic,
	},
}

// reads reads and expects these messages.
func (e *driverEnv) read(from string, max int, want []*backend.Message) {
	e.Helper()
	v := e.Verbs()
	got, err := v.Read(e.Context(), topic, from, max)
	e.Verb(err)
	if len(got) != len(want) {
		e.Failf("Read from %q of at most %d: got %d messages, want %d", from, max, len(got), len(want))
	}
	for i := range got {
		e.same(&got[i], want[i])
		copy(got[i].Payload, "changed by its reader")
	}
}

func read(e *driverEnv) {
	src := e.Attach("g")
	ms := numbered("", 10)
	for _, m := range ms {
		m.Key, m.Headers = "key", backend.Headers{{Name: "name", Value: m.ID}}
	}
	e.Publish(ms...)
	e.read("", 100, ms)
	e.read("", 3, ms[:3])
	e.read(ms[2].Position, 4, ms[3:7])
	e.read(ms[6].Position, 4, ms[7:])
	e.read(ms[9].Position, 4, nil)
	ds := e.Receive(src, 10)
	if got, want := ids(ds), idsOf(ms); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
	for _, d := range ds {
		e.Attempt(d, 1)
	}
	e.read("", 100, ms)
}

func readWaitsNot(e *driverEnv) {
	ms := e.PublishN(1)
	start := time.Now()
	e.read(ms[0].Position, 10, nil)
	e.By(start, 0, "Read returned")
}

func readUnknownTopic(e *driverEnv) {
	v := e.Verbs()
	_, err := v.Read(e.Context(), "unknown", "", 10)
	e.Is("Read", e.fenced(err), backend.ErrGone)
}
