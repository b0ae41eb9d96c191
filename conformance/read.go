package conformance

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var readLaws = []law{
	{
		id: "C34", name: "read", promise: "Read returns what a topic keeps after a position, oldest first, and no group notices",
		needs:     []need{needReader},
		saboteurs: []string{"reads-from-included", "reads-settle", "reads-backwards", "reads-bare", "reads-share-memory"}, driver: read,
	}, {
		id: "C35", name: "read-waits-not", promise: "Read returns none at the end, at once",
		needs:     []need{needReader},
		saboteurs: []string{"reads-wait"}, driver: readWaitsNot,
	}, {
		id: "C36", name: "read-unknown-topic", promise: "Read of a topic that does not exist is ErrGone",
		needs:     []need{needReader},
		saboteurs: []string{"shrugs"}, driver: readUnknownTopic,
	},
}

// read reads and expects these messages.
func (e *driverEnv) read(from string, max int, want []*backend.Message) {
	e.Helper()
	v := e.verbs()
	got, err := v.Read(e.Context(), topic, from, max)
	e.verb(err)
	if len(got) != len(want) {
		e.failf("Read from %q of at most %d: got %d messages, want %d", from, max, len(got), len(want))
	}
	for i := range got {
		e.same(&got[i], want[i])
		copy(got[i].Payload, "changed by its reader")
	}
}

func read(e *driverEnv) {
	src := e.attach("g")
	ms := numbered("", 10)
	for _, m := range ms {
		m.Key, m.Headers = "key", backend.Headers{{Name: "name", Value: m.ID}}
	}
	e.publish(ms...)
	e.read("", 100, ms)
	e.read("", 3, ms[:3])
	e.read(ms[2].Position, 4, ms[3:7])
	e.read(ms[6].Position, 4, ms[7:])
	e.read(ms[9].Position, 4, nil)
	ds := e.receive(src, 10)
	if got, want := ids(ds), idsOf(ms); !slices.Equal(got, want) {
		e.failf("the group got %v, want %v", got, want)
	}
	for _, d := range ds {
		e.attempt(d, 1)
	}
	e.read("", 100, ms)
}

func readWaitsNot(e *driverEnv) {
	ms := e.publishN(1)
	start := time.Now()
	e.read(ms[0].Position, 10, nil)
	e.by(start, 0, "Read returned")
}

func readUnknownTopic(e *driverEnv) {
	v := e.verbs()
	_, err := v.Read(e.Context(), "unknown", "", 10)
	e.is("Read", e.fenced(err), backend.ErrGone)
}
