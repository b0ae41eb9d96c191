package contract

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// startAtLaws are about places in a topic that are given by a time.
var startAtLaws = []law.Law{
	{
		ID: "C95", Name: "start-at", Promise: "a new group that starts at a time gets what was stored then or later, and nothing from before",
		Faults: []string{"start-latest"}, Test: startAt,
	}, {
		ID: "C96", Name: "start-at-ends", Promise: "a time before all messages is the oldest message, and a time in the future is the next message",
		Faults: []string{"start-latest"}, Test: startAtEnds,
	}, {
		ID: "C97", Name: "reset-at", Promise: "a group that is reset to a time begins anew with what was stored then or later",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"start-latest"}, Test: resetAt,
	}, {
		ID: "C98", Name: "read-at", Promise: "Read begins where a group with the same Start would",
		Needs:  []law.Need{law.NeedVerb[backend.Reader]()},
		Faults: []string{"start-latest", "read-from-included"}, Test: readAt,
	},
}

// epochs publishes 30 messages in three parts. It returns them, and a time between the first
// and the second part, and another one between the second and the third, by the clock of the
// backend.
func epochs(e *law.Env) (ms []*backend.Message, first, second time.Time) {
	e.Helper()
	part := func(prefix string) { ms = append(ms, e.Publish(law.Numbered(prefix, 10)...)...) }
	between := func() (now time.Time) {
		time.Sleep(50 * time.Millisecond) // some brokers count in milliseconds
		now = e.Now()
		time.Sleep(50 * time.Millisecond)
		return now
	}
	e.Attach("keeps")
	part("a-")
	first = between()
	part("b-")
	second = between()
	part("c-")
	return ms, first, second
}

func startAt(e *law.Env) {
	ms, first, second := epochs(e)
	for i, at := range []time.Time{first, second} {
		src := e.AttachAs(backend.Config{Group: string(rune('a' + i)), Start: backend.StartAt(at)})
		want := law.IDsOf(ms[10*(i+1):])
		if got := law.IDs(e.Receive(src, len(want))); !slices.Equal(got, want) {
			e.Failf("a group that starts at time %d of 2 got %v, want %v", i+1, got, want)
		}
		e.Nothing(src, e.Lease/10, "it got all from its start on")
	}
}

func startAtEnds(e *law.Env) {
	ms, _, second := epochs(e)
	old := e.AttachAs(backend.Config{Group: "old", Start: backend.StartAt(time.Unix(1, 0))})
	if got, want := law.IDs(e.Receive(old, len(ms))), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("a group that starts in 1970 got %v, want %v", got, want)
	}
	future := e.AttachAs(backend.Config{Group: "future", Start: backend.StartAt(second.Add(time.Hour))})
	e.Nothing(future, e.Lease/10, "it starts in an hour, so with the next message")
	e.Publish(&backend.Message{ID: "next"})
	if d := e.One(future); d.ID != "next" {
		e.Failf("a group that starts in an hour got %q, want the next message", d.ID)
	}
}

func resetAt(e *law.Env) {
	ms, first, second := epochs(e)
	src := e.Attach("g")
	e.Ack(src, e.Receive(src, len(ms))...)
	for i, at := range []time.Time{second, first} {
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartAt(at)))
		want := law.IDsOf(ms[20-10*i:])
		ds := e.Receive(src, len(want))
		if got := law.IDs(ds); !slices.Equal(got, want) {
			e.Failf("a group that was reset to a time got %v, want %v", got, want)
		}
		e.Ack(src, ds...)
	}
}

func readAt(e *law.Env) {
	ms, first, second := epochs(e)
	readsFrom(e, backend.StartAt(first), 100, ms[10:])
	readsFrom(e, backend.StartAt(second), 3, ms[20:23])
	readsFrom(e, backend.StartAt(time.Unix(1, 0)), 100, ms)
	readsFrom(e, backend.StartAt(second.Add(time.Hour)), 100, nil)
	readsFrom(e, backend.StartAfter(ms[4].Position), 2, ms[5:7])
	readsFrom(e, backend.StartLatest, 100, nil)
	readsFrom(e, backend.StartAfter(ms[29].Position), 100, nil)
}
