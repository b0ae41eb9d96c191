package contract

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var adminLaws = []law.Law{
	{
		ID: "C39", Name: "lists", Promise: "Topics and Groups list what exists, sorted",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"lists-by-prefix"}, Test: lists,
	}, {
		ID: "C40", Name: "delete-topic", Promise: "deleting a topic removes its groups and messages and notifies its members, but does not affect other topics",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"lists-by-prefix"}, Test: deleteTopic,
	}, {
		ID: "C41", Name: "delete-group", Promise: "deleting a group notifies its members, but does not affect other groups",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"every-group", "lists-by-prefix"}, Test: deleteGroup,
	}, {
		ID: "C70", Name: "old-delivery", Promise: "if acknowledgements are fenced, a delivery from a deleted group has lost its lease, and changes nothing in a new group of the same name",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedFence},
		Faults: []string{"unfenced"}, Test: oldDelivery,
	}, {
		ID: "C42", Name: "reset-group", Promise: "a group that is reset starts over where it was told to and forgets what it held and delayed, without affecting other groups",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedDelayer},
		Faults: []string{"reset-ignored", "start-latest", "every-group"}, Test: resetGroup,
	}, {
		ID: "C61", Name: "reset-stale", Promise: "if acknowledgements are fenced, a delivery from before ResetGroup can no longer be delayed, extended or acknowledged, and the restarted group is not affected",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedDelayer, law.NeedFence},
		Faults: []string{"unfenced", "lost-leases-hidden"}, Test: resetStale,
	}, {
		ID: "C81", Name: "reset-received-again", Promise: "if acknowledgements are fenced, a delivery from before ResetGroup is lost, even if its member has received the message again",
		Needs:  []law.Need{law.NeedVerb[backend.Admin](), law.NeedRest, law.NeedFence},
		Faults: []string{"unfenced"}, Test: resetReceivedAgain,
	}, {
		ID: "C69", Name: "reset-wakes", Promise: "a member that waits in Receive while its group is reset gets the messages that are due after the reset",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"reset-ignored"}, Test: resetWakes,
	}, {
		ID: "C43", Name: "admin-unknown", Promise: "changing what does not exist returns ErrGone",
		Needs:  []law.Need{law.NeedVerb[backend.Admin]()},
		Faults: []string{"errors-hidden"}, Test: adminUnknown,
	},
}

func lists(e *law.Env) {
	for _, name := range []string{"b", "a.b", "a", "c"} {
		e.Publish(&backend.Message{Topic: name})
	}
	e.AttachAs(backend.Config{Topic: "a.b", Group: "other"})
	for _, name := range []string{"z", "x.y", "x"} {
		e.AttachAs(backend.Config{Topic: "b", Group: name})
	}
	all := []string{"a", "a.b", "b", "c"}
	e.AwaitTopics(func(topics []string) bool { return slices.Equal(topics, all) }, fmt.Sprintf("%q", all))
	e.AwaitGroups("b", "x", "x.y", "z")
	e.AwaitGroups("a")
}

// learns expects ErrGone from a Receive that waits, and from the next Receive of src, which
// is another member.
func learns(e *law.Env, waiting <-chan law.Received, src backend.Source) {
	e.Helper()
	deleted := time.Now()
	r := <-waiting
	e.Is("Receive that was waiting", r.Err, backend.ErrGone)
	e.By(deleted, 0, "Receive returned")
	r = <-e.Background(e.Bounded(), src, 1)
	e.Is("Receive after that", r.Err, backend.ErrGone)
}

// learned expects that a member learns from Delay, Extend and a fenced Ack that its group is
// gone. Each call gets one of the three deliveries in ds.
func learned(e *law.Env, src backend.Source, ds []backend.Delivery) {
	e.Helper()
	time.Sleep(e.Grace) // the servers of a cluster may serve the group for a moment
	gone := func(what string, call func() error) {
		e.Helper()
		err := backend.ErrorAt(call(), 0)
		if errors.Is(err, backend.ErrUnknownOutcome) {
			err = backend.ErrorAt(call(), 0)
		}
		if !errors.Is(err, backend.ErrGone) && !errors.Is(err, backend.ErrLeaseLost) {
			e.Failf("%s by a member of a deleted group: got error %v, want one that matches %q or %q", what, err, backend.ErrGone, backend.ErrLeaseLost)
		}
	}
	if _, ok := backend.As[backend.Delayer](src); ok {
		gone("Delay", func() error { return claimed(e, e.Delay(src, 0, ds[0])) })
	}
	if _, ok := backend.As[backend.Extender](src); ok {
		gone("Extend", func() error { return claimed(e, e.Extend(src, ds[1])) })
	}
	if e.Limits.FencedAcks {
		gone("Ack", func() error { return src.Ack(e.Context(), backend.Lend(ds[2:3])) })
	}
}

// neighbours are names that begin with the name of a topic or a group.
func neighbours(name string) []string { return []string{name + ".a", name + "2"} }

func deleteTopic(e *law.Env) {
	waits, other := e.Attach("g"), e.Attach("g")
	for _, name := range neighbours(law.Topic) {
		e.AttachAs(backend.Config{Topic: name, Group: "g"})
		e.Publish(&backend.Message{Topic: name, ID: name})
	}
	e.PublishN(3)
	ds := e.Receive(other, 3)
	waiting := e.Background(e.Bounded(), waits, 1)
	time.Sleep(e.Lease / 4)
	e.Verb(e.Verbs().DeleteTopic(e.Context(), law.Topic))
	learned(e, other, ds)
	learns(e, waiting, other)
	e.AwaitTopics(func(topics []string) bool { return !slices.Contains(topics, law.Topic) }, "it gone")
	again := e.Attach("g")
	e.Publish(&backend.Message{ID: "recreated"})
	if d := e.One(again); d.ID != "recreated" {
		e.Failf("got %q, want nothing from before", d.ID)
	}
	e.Nothing(again, e.Lease/4, "the rest was deleted")
	for _, name := range neighbours(law.Topic) {
		if d := e.One(e.AttachAs(backend.Config{Topic: name, Group: "g", Start: backend.StartLatest})); d.ID != name {
			e.Failf("got %q of topic %s, want its message", d.ID, name)
		}
	}
}

func deleteGroup(e *law.Env) {
	waits, other := e.Attach("g"), e.Attach("g")
	others := append(neighbours("g"), "stays")
	var stay []backend.Source
	for _, name := range others {
		stay = append(stay, e.Attach(name))
	}
	want := law.IDsOf(e.PublishN(3))
	held := e.Receive(other, 3)
	waiting := e.Background(e.Bounded(), waits, 1)
	time.Sleep(e.Lease / 4)
	e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"))
	learned(e, other, held)
	learns(e, waiting, other)
	e.Must(other.Close())
	closed(e, other, backend.Delivery{})
	e.AwaitGroups(law.Topic, others...)
	for i, src := range stay {
		if got := law.IDs(e.Receive(src, 3)); !slices.Equal(got, want) {
			e.Failf("group %s got %v, want %v", others[i], got, want)
		}
	}
	again := e.Attach("g")
	ds := e.Receive(again, 3)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("created again, the group got %v, want what the topic keeps: %v", got, want)
	}
	e.Attempt(ds[0], 1)
}

func oldDelivery(e *law.Env) {
	e.Attach("keeps")
	old := e.Attach("g")
	want := law.IDsOf(e.PublishN(3))
	stale := e.Receive(old, 3)
	e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"))
	recreated := e.Attach("g")
	start := time.Now()
	e.Receive(recreated, 3)
	learned(e, old, stale)
	unheld(e, recreated, "a delivery of the deleted group by a member of the new one", stale[0], backend.ErrLeaseLost)
	got := law.IDs(e.Receive(recreated, 3))
	e.NotBefore(start, e.Lease, "the new group got its messages again")
	if !slices.Equal(got, want) {
		e.Failf("got %v when the leases in the new group had expired, want %v", got, want)
	}
}

func resetGroup(e *law.Env) {
	keeps := e.Attach("keeps")
	src := e.Attach("g")
	ms := e.PublishN(6)
	ds := e.Receive(src, 4)
	e.Ack(src, ds[0])
	e.Verb(e.Delay(src, 2*e.Lease, ds[1]))
	for _, c := range []struct {
		start backend.Start
		want  []*backend.Message
	}{
		{backend.StartEarliest, ms}, {backend.StartAfter(ms[3].Position), ms[4:]}, {backend.StartLatest, nil},
	} {
		e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", c.start))
		ds := e.Receive(src, len(c.want))
		if got, want := law.IDs(ds), law.IDsOf(c.want); !slices.Equal(got, want) {
			e.Failf("reset to %q: got %v, want %v", c.start, got, want)
		}
		for _, d := range ds {
			e.Attempt(d, 1)
		}
		e.Nothing(src, e.Lease/4, "the group has no more")
	}
	e.Nothing(src, 3*e.Lease, "what was held and delayed is forgotten")
	e.Publish(&backend.Message{ID: "later"})
	if d := e.One(src); d.ID != "later" {
		e.Failf("got %q, want what was published after the reset", d.ID)
	}
	if got, want := law.IDs(e.Receive(keeps, 7)), append(law.IDsOf(ms), "later"); !slices.Equal(got, want) {
		e.Failf("a group that was not reset got %v, want %v", got, want)
	}
}

// resetStale checks that deliveries from before ResetGroup are stale. At first nobody holds
// their messages. Later another member holds them. The member with the stale deliveries
// does not call Receive in between, so only the broker can detect the reset. A broker that
// detects lost leases by time alone must not state FencedAcks.
func resetStale(e *law.Env) {
	e.AttachAs(backend.Config{Group: "keeps"})
	long := backend.Config{Group: "g", Lease: 3 * e.Lease}
	one, two := e.AttachAs(long), e.AttachAs(long)
	want := law.IDsOf(e.PublishN(4))
	stale := e.Receive(one, 4)
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
	lost(e, one, "a delivery from before ResetGroup", stale)
	held := e.Receive(two, 4)
	start := time.Now()
	if got := law.IDs(held); !slices.Equal(got, want) {
		e.Failf("got %v after ResetGroup, want %v", got, want)
	}
	for _, d := range held {
		e.Attempt(d, 1)
	}
	lost(e, one, "a delivery from before ResetGroup that another holds now", stale)
	e.Nothing(one, e.Lease/2, "another holds all")
	e.Ack(two, held[1:]...)
	if d := e.One(one); d.ID != held[0].ID {
		e.Failf("got %q, want %q, which nobody has acknowledged", d.ID, held[0].ID)
	}
	e.NotBefore(start, 3*e.Lease-e.Lease/2, "it was taken from its holder")
}

func resetReceivedAgain(e *law.Env) {
	e.AttachAs(backend.Config{Group: "keeps"})
	src := e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	e.PublishN(1)
	stale := e.One(src)
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
	held := e.One(src)
	unheld(e, src, "a delivery from before ResetGroup", stale, backend.ErrLeaseLost)
	e.Ack(src, held)
}

func resetWakes(e *law.Env) {
	e.AttachAs(backend.Config{Group: "keeps"})
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(3))
	e.Ack(src, e.Receive(src, 3)...)
	waiting := e.Background(e.Bounded(), src, 3)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
	r := <-waiting
	e.Must(r.Err)
	got := r.Deliveries
	e.By(start, 0, "the first messages were received")
	if more := 3 - len(got); more > 0 {
		got = append(slices.Clone(got), e.Receive(src, more)...)
	}
	if ids := law.IDs(got); !slices.Equal(ids, want) {
		e.Failf("got %v, want what the group begins with again: %v", ids, want)
	}
}

// lost expects ErrLeaseLost from four calls on src: Delay, Extend, Ack and again Delay.
// Each call gets one of the four deliveries in ds.
func lost(e *law.Env, src backend.Source, what string, ds []backend.Delivery) {
	e.Helper()
	e.Is("Delay of "+what, backend.ErrorAt(claimed(e, e.Delay(src, 0, ds[0])), 0), backend.ErrLeaseLost)
	if _, ok := backend.As[backend.Extender](src); ok {
		e.Is("Extend of "+what, backend.ErrorAt(claimed(e, e.Extend(src, ds[1])), 0), backend.ErrLeaseLost)
	}
	e.Is("Ack of "+what, backend.ErrorAt(src.Ack(e.Context(), backend.Lend(ds[2:3])), 0), backend.ErrLeaseLost)
	e.Is("Delay of "+what, backend.ErrorAt(claimed(e, e.Delay(src, 2*e.Lease, ds[3])), 0), backend.ErrLeaseLost)
}

func adminUnknown(e *law.Env) {
	a, ctx := e.Verbs(), e.Context()
	e.Attach("g")
	_, err := a.Groups(ctx, "unknown")
	e.Is("Groups of an unknown topic", claimed(e, err), backend.ErrGone)
	e.Is("DeleteTopic", claimed(e, a.DeleteTopic(ctx, "unknown")), backend.ErrGone)
	e.Is("DeleteGroup", claimed(e, a.DeleteGroup(ctx, law.Topic, "unknown")), backend.ErrGone)
	e.Is("ResetGroup", claimed(e, a.ResetGroup(ctx, law.Topic, "unknown", backend.StartEarliest)), backend.ErrGone)
}
