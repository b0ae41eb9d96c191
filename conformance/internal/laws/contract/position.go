package contract

import (
	"cmp"
	"errors"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var positionLaws = []law.Law{
	{
		ID: "C06", Name: "position-increases", Promise: "a message stored later in a topic has a greater position when compared as a string",
		Faults: []string{"position-unknown"}, Test: positionIncreases,
	}, {
		ID: "C07", Name: "position-stays", Promise: "a message has the position that Publish reported on every receipt in every group",
		Faults: []string{"position-unknown"}, Test: positionStays,
	}, {
		ID: "C82", Name: "position-of-deleted-topic", Promise: "in a topic that was deleted and recreated, a position from the deleted topic is lower than all others, or refused",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"position-restarts"}, Test: positionOfDeletedTopic,
	},
}

func positionIncreases(e *law.Env) {
	const n = 1150 // so that the decimal numbers in positions get longer: at 10, 100 and 1000
	src := e.AttachAs(backend.Config{Group: "g", MaxInFlight: n})
	ms := e.PublishN(n)
	last := ""
	for _, m := range ms {
		if m.Position <= last {
			e.Failf("message %s has position %q, and the previous message %q", m.ID, m.Position, last)
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

// positionOfDeletedTopic compares the positions of a deleted topic with a topic of the same name
// that has fewer messages, and then more. After a loss the bus begins after the last
// position that it received, and must miss nothing.
func positionOfDeletedTopic(e *law.Env) {
	src := e.Attach("g")
	old := e.PublishN(5)
	e.Ack(src, e.Receive(src, len(old))...)
	e.Verb(e.Verbs().DeleteTopic(e.Context(), law.Topic))
	e.AttachAs(backend.Config{Group: "keeps"})
	recreated := e.Publish(law.Numbered("new-", 3)...)
	startsAfter(e, "few", old, recreated)
	recreated = append(recreated, e.Publish(law.Numbered("more-", 20)...)...)
	startsAfter(e, "many", old, recreated)
}

// startsAfter expects that a group after a position in old is refused, or gets all messages in
// recreated.
func startsAfter(e *law.Env, group string, old, recreated []*backend.Message) {
	e.Helper()
	reset := e.AttachAs(backend.Config{Group: "reset-" + group, Start: backend.StartLatest})
	for _, i := range []int{0, len(old) - 1} {
		start := backend.StartAfter(old[i].Position)
		c := e.Config(backend.Config{Group: group + old[i].ID, Start: start})
		src, err := e.Backend.Attach(e.Context(), c)
		if err == nil {
			e.Cleanup(func() { src.Close() })
		}
		missesNone(e, "Attach", src, err, old[i].Position, recreated)
		err = claimed(e, e.Verbs().ResetGroup(e.Context(), law.Topic, "reset-"+group, start))
		missesNone(e, "ResetGroup", reset, err, old[i].Position, recreated)
	}
}

// missesNone expects that src gets all messages in want, or that err is ErrRefused.
func missesNone(e *law.Env, call string, src backend.Source, err error, position string, want []*backend.Message) {
	e.Helper()
	if errors.Is(err, backend.ErrRefused) {
		return
	}
	e.Must(err)
	if got, want := law.IDs(e.ReceiveWithin(src, len(want), e.Soon())), law.IDsOf(want); !slices.Equal(got, want) {
		e.Failf("%s after position %q of the deleted topic: got %v, want an error that matches %q, or all: %v", call, position, got, backend.ErrRefused, want)
	}
}
