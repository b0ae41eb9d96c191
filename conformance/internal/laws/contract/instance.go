package contract

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// instanceLaws are about a process that died and was started again with the same name.
var instanceLaws = []law.Law{
	{
		ID: "L13", Name: "replaced-at-once", Promise: "a later incarnation of an instance gets the messages that the previous one held at once, in order, before new ones, and with the attempt counted",
		Needs:  []law.Need{law.NeedInstances},
		Faults: []string{"instance-ignored", "receive-reverses", "receive-forgets-redelivered"}, Test: replacedAtOnce,
	}, {
		ID: "L14", Name: "replaced-holds-nothing", Promise: "a replaced member gets ErrReplaced and no messages, cannot settle or extend what it held, and takes nothing from the later incarnation",
		Needs:  []law.Need{law.NeedInstances, law.NeedRest},
		Faults: []string{"instance-ignored", "lost-leases-hidden"}, Test: replacedHoldsNothing,
	}, {
		ID: "L15", Name: "replaced-while-waiting", Promise: "a waiting member learns within a second that it has been replaced, and a message published then does not wait for a lease",
		Needs:  []law.Need{law.NeedInstances},
		Faults: []string{"instance-ignored"}, Test: replacedWhileWaiting,
	}, {
		ID: "L16", Name: "others-not-replaced", Promise: "a member of another instance, no instance, the same incarnation or another group is not replaced: it keeps its messages and receives",
		Needs:  []law.Need{law.NeedInstances},
		Faults: []string{"instance-replaces-everyone"}, Test: othersNotReplaced,
	},
}

// incarnation attaches a member of the instance "shop-0" in the named incarnation, in a
// process of its own if there can be one.
func incarnation(e *law.Env, name string) backend.Source {
	e.Helper()
	c := e.Config(backend.Config{Group: "g", Instance: "shop-0", Incarnation: name, Lease: 5 * e.Lease})
	if e.Claims(law.NeedPeer) {
		_, src := e.AttachPeer(c)
		return src
	}
	return e.AttachTo(e.Backend, c)
}

func replacedAtOnce(e *law.Env) {
	const held, fresh = 500, 20
	one := incarnation(e, "first")
	want := law.IDsOf(e.Publish(law.Numbered("", held+fresh)...))
	e.Receive(one, held)
	start := time.Now()
	two := incarnation(e, "second")
	ds := e.Receive(two, held+fresh)
	e.By(start, 2*time.Second, "the later incarnation got its messages")
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("the later incarnation got %v, want all in order", got)
	}
	for i, d := range ds {
		again := i < held
		if d.Redelivered != again {
			e.Failf("delivery %s: got Redelivered %v, want %v", d.ID, d.Redelivered, again)
		}
		attempt := 1
		if again {
			attempt = 2
		}
		e.Attempt(d, attempt)
	}
	e.Ack(two, ds...)
	e.Nothing(incarnation(e, "third"), e.Soon(), "all are acknowledged")
}

func replacedHoldsNothing(e *law.Env) {
	one := incarnation(e, "first")
	e.PublishN(3)
	stale := e.Receive(one, 3)
	two := incarnation(e, "second")
	for range 2 {
		ds, err := one.Receive(e.Bounded(), 1, 0)
		if e.Is("Receive of a replaced member", err, backend.ErrReplaced); len(ds) > 0 {
			e.Failf("a replaced member got %v", law.IDs(ds))
		}
	}
	refused := func() {
		e.Helper()
		if e.Claims(law.NeedExtender) {
			e.Is("Extend of a replaced member", backend.ErrorAt(e.Extend(one, stale...), 0), backend.ErrLeaseLost)
		}
		if e.Claims(law.NeedDelayer) {
			e.Is("Delay of a replaced member", backend.ErrorAt(e.Delay(one, 0, stale...), 0), backend.ErrLeaseLost)
		}
		if e.Limits.FencedAcks {
			e.Is("Ack of a replaced member", backend.ErrorAt(one.Ack(e.Context(), backend.Lend(stale)), 0), backend.ErrLeaseLost)
		}
	}
	refused()
	held := e.Receive(two, 3)
	refused()
	e.Nothing(two, e.Lease, "the later incarnation holds all messages")
	e.Ack(two, held...)
	e.Must(one.Close())
	_, err := one.Receive(e.Bounded(), 1, 0)
	e.Is("Receive after Close", err, backend.ErrClosed)
}

func replacedWhileWaiting(e *law.Env) {
	one := incarnation(e, "first")
	waiting := e.Background(e.Bounded(), one, 10)
	time.Sleep(e.Soon()) // it waits
	start := time.Now()
	two := incarnation(e, "second")
	e.PublishN(1)
	e.Ack(two, e.One(two))
	e.By(start, time.Second, "the later incarnation got the message")
	r := <-waiting
	if e.Is("a Receive under way", r.Err, backend.ErrReplaced); len(r.Deliveries) > 0 {
		e.Failf("a replaced member got %v", law.IDs(r.Deliveries))
	}
	e.By(start, time.Second, "the replaced member learned it")
}

func othersNotReplaced(e *law.Env) {
	others := []backend.Config{
		{Group: "g", Instance: "shop-0", Incarnation: "second"},
		{Group: "g", Instance: "shop-00", Incarnation: "first"},
		{Group: "g", Instance: "shop", Incarnation: "first"},
		{Group: "g"},
		{Group: "h", Instance: "shop-0", Incarnation: "first"},
	}
	members := make([]backend.Source, len(others))
	held := make([]backend.Delivery, len(others))
	for i, c := range others {
		c.Lease = 20 * e.Lease
		members[i] = e.AttachAs(c)
	}
	e.PublishN(len(others))
	for i, m := range members {
		held[i] = e.One(m)
	}
	two := incarnation(e, "second")
	more := e.Receive(two, 1)
	e.Ack(two, more...)
	e.Nothing(two, e.Lease, "the other members hold the rest")
	for i, m := range members {
		e.Ack(m, held[i])
	}
	for range members {
		e.Publish(&backend.Message{ID: "next"})
	}
	for _, m := range members {
		if err := received(e, m); err != nil {
			e.Failf("Receive of a member that is not replaced: got error %v, want none", err)
		}
	}
}

// received receives and acknowledges a message, if one is due.
func received(e *law.Env, m backend.Source) error {
	ds, err := m.Receive(e.Within(e.Soon()), 1, 0)
	if len(ds) > 0 {
		e.Ack(m, ds[0])
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
