package conformance

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var adminLaws = []law{
	{
		id: "C39", name: "lists", promise: "Topics and Groups list what exists, sorted",
		needs:     []need{needAdmin},
		saboteurs: []string{"lists-unsorted", "lists-half"}, driver: lists,
	}, {
		id: "C40", name: "delete-topic", promise: "a deleted topic is gone with its groups and messages, and members learn of it",
		needs:     []need{needAdmin},
		saboteurs: []string{"deletes-in-silence", "deletes-nothing"}, driver: deleteTopic,
	}, {
		id: "C41", name: "delete-group", promise: "a deleted group is gone, its members learn of it, and other groups do not notice",
		needs:     []need{needAdmin},
		saboteurs: []string{"deletes-in-silence", "deletes-nothing", "deletes-every-group"}, driver: deleteGroup,
	}, {
		id: "C42", name: "reset-group", promise: "a group that is reset begins anew where it is told, and forgets what it held and delayed",
		needs:     []need{needAdmin, needDelayer},
		saboteurs: []string{"resets-nothing", "resets-to-latest"}, driver: resetGroup,
	}, {
		id: "C61", name: "reset-stale", promise: "where acknowledgements are fenced, a delivery from before ResetGroup can be neither delayed nor extended nor acknowledged after it, and the group that begins anew does not notice",
		needs:     []need{needAdmin, needDelayer, needFence},
		saboteurs: []string{"unfenced-delays", "unfenced-extends", "unfenced-acks", "loses-leases-in-silence"}, driver: resetStale,
	}, {
		id: "C43", name: "admin-unknown", promise: "changing what does not exist is ErrGone",
		needs:     []need{needAdmin},
		saboteurs: []string{"shrugs"}, driver: adminUnknown,
	},
}

func lists(e *driverEnv) {
	for _, name := range []string{"b", "a.b", "a", "c"} {
		e.publish(&backend.Message{Topic: name})
	}
	for _, name := range []string{"z", "x.y", "x"} {
		e.attachAs(backend.Config{Topic: "b", Group: name})
	}
	topics, err := e.verbs().Topics(e.Context())
	e.verb(err)
	if want := []string{"a", "a.b", "b", "c"}; !slices.Equal(topics, want) {
		e.failf("got topics %q, want %q", topics, want)
	}
	groups, err := e.verbs().Groups(e.Context(), "b")
	e.verb(err)
	if want := []string{"x", "x.y", "z"}; !slices.Equal(groups, want) {
		e.failf("got groups %q, want %q", groups, want)
	}
	groups, err = e.verbs().Groups(e.Context(), "a")
	e.verb(err)
	if len(groups) != 0 {
		e.failf("got groups %q, want none", groups)
	}
}

// learns expects that a member finds out: one that waits in Receive, and any
// other at its next call.
func (e *driverEnv) learns(waiting <-chan received, src backend.Source) {
	e.Helper()
	deleted := time.Now()
	r := <-waiting
	e.is("Receive that was waiting", r.err, backend.ErrGone)
	e.by(deleted, 0, "Receive returned")
	r = <-e.background(e.bounded(), src, 1)
	e.is("Receive after that", r.err, backend.ErrGone)
}

func deleteTopic(e *driverEnv) {
	waits, other := e.attach("g"), e.attach("g")
	e.publishN(3)
	e.receive(other, 3)
	waiting := e.background(e.bounded(), waits, 1)
	time.Sleep(e.lease / 4)
	e.verb(e.verbs().DeleteTopic(e.Context(), topic))
	e.learns(waiting, other)
	topics, err := e.verbs().Topics(e.Context())
	e.verb(err)
	if slices.Contains(topics, topic) {
		e.failf("got topics %q, want it gone", topics)
	}
	again := e.attach("g")
	e.publish(&backend.Message{ID: "anew"})
	if d := e.one(again); d.ID != "anew" {
		e.failf("got %q, want nothing from before", d.ID)
	}
	e.nothing(again, e.lease/4, "the rest was deleted")
}

func deleteGroup(e *driverEnv) {
	waits, other, stays := e.attach("g"), e.attach("g"), e.attach("stays")
	want := idsOf(e.publishN(3))
	e.receive(other, 3)
	waiting := e.background(e.bounded(), waits, 1)
	time.Sleep(e.lease / 4)
	e.verb(e.verbs().DeleteGroup(e.Context(), topic, "g"))
	e.learns(waiting, other)
	e.must(other.Close())
	e.closed(other, backend.Delivery{})
	if got := ids(e.receive(stays, 3)); !slices.Equal(got, want) {
		e.failf("another group got %v, want %v", got, want)
	}
	groups, err := e.verbs().Groups(e.Context(), topic)
	e.verb(err)
	if want := []string{"stays"}; !slices.Equal(groups, want) {
		e.failf("got groups %q, want %q", groups, want)
	}
	again := e.attach("g")
	ds := e.receive(again, 3)
	if got := ids(ds); !slices.Equal(got, want) {
		e.failf("created again, the group got %v, want what the topic keeps: %v", got, want)
	}
	e.attempt(ds[0], 1)
}

func resetGroup(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps"})
	src := e.attach("g")
	ms := e.publishN(6)
	ds := e.receive(src, 4)
	e.ack(src, ds[0])
	e.verb(e.delay(src, 2*e.lease, ds[1]))
	for _, c := range []struct {
		start backend.Start
		want  []*backend.Message
	}{
		{backend.StartEarliest, ms}, {backend.StartAfter(ms[3].Position), ms[4:]}, {backend.StartLatest, nil},
	} {
		e.verb(e.verbs().ResetGroup(e.Context(), topic, "g", c.start))
		ds := e.receive(src, len(c.want))
		if got, want := ids(ds), idsOf(c.want); !slices.Equal(got, want) {
			e.failf("reset to %q: got %v, want %v", c.start, got, want)
		}
		for _, d := range ds {
			e.attempt(d, 1)
		}
		e.nothing(src, e.lease/4, "the group has no more")
	}
	e.nothing(src, 3*e.lease, "what was held and delayed is forgotten")
	e.publish(&backend.Message{ID: "later"})
	if d := e.one(src); d.ID != "later" {
		e.failf("got %q, want what was published after the reset", d.ID)
	}
}

// The stale deliveries are at first of messages that nobody has taken since, and then
// of messages that another member holds. The member that lost them does not receive
// meanwhile: only the broker can know. A broker that knows holders by their clocks
// alone states no FencedAcks.
func resetStale(e *driverEnv) {
	e.attachAs(backend.Config{Group: "keeps"})
	long := backend.Config{Group: "g", Lease: 3 * e.lease}
	one, two := e.attachAs(long), e.attachAs(long)
	want := idsOf(e.publishN(4))
	stale := e.receive(one, 4)
	e.verb(e.verbs().ResetGroup(e.Context(), topic, "g", backend.StartEarliest))
	e.lost(one, "a delivery from before ResetGroup", stale)
	held := e.receive(two, 4)
	start := time.Now()
	if got := ids(held); !slices.Equal(got, want) {
		e.failf("got %v after ResetGroup, want %v", got, want)
	}
	for _, d := range held {
		e.attempt(d, 1)
	}
	e.lost(one, "a delivery from before ResetGroup that another holds now", stale)
	e.nothing(one, e.lease/2, "another holds all")
	e.ack(two, held[1:]...)
	if d := e.one(one); d.ID != held[0].ID {
		e.failf("got %q, want %q, which nobody has acknowledged", d.ID, held[0].ID)
	}
	e.notBefore(start, 3*e.lease-e.lease/2, "it was taken from its holder")
}

// lost expects that each settlement of four deliveries is told of a lost lease.
func (e *driverEnv) lost(src backend.Source, what string, ds []backend.Delivery) {
	e.Helper()
	e.is("Delay of "+what, backend.ErrorAt(e.fenced(e.delay(src, 0, ds[0])), 0), backend.ErrLeaseLost)
	if _, ok := backend.As[backend.Extender](src); ok {
		e.is("Extend of "+what, backend.ErrorAt(e.fenced(e.extend(src, ds[1])), 0), backend.ErrLeaseLost)
	}
	e.is("Ack of "+what, backend.ErrorAt(src.Ack(e.Context(), backend.Lend(ds[2:3])), 0), backend.ErrLeaseLost)
	e.is("Delay of "+what, backend.ErrorAt(e.fenced(e.delay(src, 2*e.lease, ds[3])), 0), backend.ErrLeaseLost)
}

func adminUnknown(e *driverEnv) {
	a, ctx := e.verbs(), e.Context()
	e.attach("g")
	_, err := a.Groups(ctx, "unknown")
	e.is("Groups of an unknown topic", e.fenced(err), backend.ErrGone)
	e.is("DeleteTopic", e.fenced(a.DeleteTopic(ctx, "unknown")), backend.ErrGone)
	e.is("DeleteGroup", e.fenced(a.DeleteGroup(ctx, topic, "unknown")), backend.ErrGone)
	e.is("ResetGroup", e.fenced(a.ResetGroup(ctx, topic, "unknown", backend.StartEarliest)), backend.ErrGone)
}
