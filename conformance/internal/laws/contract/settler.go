package contract

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// settlerLaws are about [backend.Settler], by which an operator takes a message away from a group.
var settlerLaws = []law.Law{
	{
		ID: "C99", Name: "settle-held", Promise: "a message that an operator settles is not redelivered, even if a member of another process holds it; other messages are",
		Needs:  []law.Need{law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ignored"}, Test: settleHeld,
	}, {
		ID: "C100", Name: "settle-delayed", Promise: "a delayed message that an operator settles is not redelivered; other delayed messages are",
		Needs:  []law.Need{law.NeedVerb[backend.Settler](), law.NeedDelayer},
		Faults: []string{"settle-ignored"}, Test: settleDelayed,
	}, {
		ID: "C101", Name: "settle-others", Promise: "settling a message as an operator does not affect other groups",
		Needs:  []law.Need{law.NeedVerb[backend.Settler]()},
		Faults: []string{"every-group"}, Test: settleOthers,
	}, {
		ID: "C102", Name: "settle-holder", Promise: "if acknowledgements are fenced and an operator has settled a message, Ack, Delay and Extend tell its holder that the lease is lost",
		Needs:  []law.Need{law.NeedVerb[backend.Settler](), law.NeedDelayer, law.NeedExtender, law.NeedFence},
		Faults: []string{"lost-leases-hidden", "settle-ignored"}, Test: settleHolder,
	}, {
		ID: "C103", Name: "settle-holder-unfenced", Promise: "if acknowledgements are not fenced and an operator has settled a message, no call by its holder brings it back, and a holder that receives soon learns that its lease is lost",
		Needs:  []law.Need{law.NeedVerb[backend.Settler](), law.NeedDelayer, law.NeedExtender},
		Faults: []string{"settle-ignored", "lost-leases-hidden"}, Test: settleHolderUnfenced,
	}, {
		ID: "C104", Name: "settle-settled", Promise: "settling a message that its group has already settled changes nothing",
		Needs:  []law.Need{law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-once"}, Test: settleSettled,
	}, {
		ID: "C105", Name: "settle-refused", Promise: "an operator cannot settle a message that its group has never received, and an invalid position is refused",
		Needs:  []law.Need{law.NeedVerb[backend.Settler]()},
		Faults: []string{"settle-ahead"}, Test: settleRefused,
	}, {
		ID: "C106", Name: "settle-unknown", Promise: "settling a message in a topic or group that does not exist returns ErrGone",
		Needs:  []law.Need{law.NeedVerb[backend.Settler]()},
		Faults: []string{"errors-hidden"}, Test: settleUnknown,
	}, {
		ID: "C107", Name: "settle-lost-reply", Promise: "an operator whose answer is lost is not told that nothing changed if the message was settled",
		Needs:  []law.Need{law.NeedVerb[backend.Settler](), law.NeedDropReply},
		Faults: []string{"errors-hidden"}, Test: settleLostReply,
	}, {
		ID: "C108", Name: "settled", Promise: "Settled is true for a message that an operator has settled, and false for one that is held, delayed, due again, or was never received",
		Needs:  []law.Need{law.NeedVerb[backend.Settler](), law.NeedDelayer},
		Faults: []string{"settle-ahead"}, Test: settledReports,
	},
}

// operator returns the verbs of another process, if the suite has one.
func operator(e *law.Env) verbs.Verbs {
	e.Helper()
	if e.Claims(law.NeedPeer) {
		return e.VerbsOf(e.Peer())
	}
	return e.Verbs()
}

// takeAway lets an operator settle messages that the group g has.
func takeAway(e *law.Env, ds ...backend.Delivery) {
	e.Helper()
	for _, d := range ds {
		had, err := operator(e).Settle(e.Context(), law.Topic, "g", d.Position)
		e.Must(claimed(e, err))
		if !had {
			e.Failf("Settle of %s, which its group has: it returned that the group had settled it before", d.ID)
		}
	}
}

// refuses expects that an operator gets an error.
func refuses(e *law.Env, what, topic, group, position string, want error) {
	e.Helper()
	_, err := operator(e).Settle(e.Context(), topic, group, position)
	e.Is("Settle "+what, claimed(e, err), want)
}

// comes expects that a member gets the messages want once more, acknowledges them, and gets no other.
func comes(e *law.Env, src backend.Source, want ...string) {
	e.Helper()
	again := e.Receive(src, len(want))
	got := law.IDs(again)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.Failf("got %v again, want %v, which nobody has settled", got, want)
	}
	e.Ack(src, again...)
	e.Nothing(src, e.Lease+e.Soon(), "all are settled")
}

func settleHeld(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(5)
	ds := e.Receive(src, 5)
	takeAway(e, ds[1], ds[3])
	time.Sleep(e.Lease + e.Soon())
	comes(e, src, "0000", "0002", "0004")
	if e.Claims(law.NeedVerb[backend.Statser]()) {
		if s := stats(e); s.Unacked > 0 || s.Lag > 0 {
			e.Failf("all are settled, but Stats are %+v", s)
		}
	}
}

func settleDelayed(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(5)
	ds := e.Receive(src, 5)
	e.Must(e.Delay(src, e.Lease/2, ds[:3]...))
	e.Must(e.Delay(src, 0, ds[3:]...)) // these are due
	takeAway(e, ds[1], ds[3])
	comes(e, src, "0000", "0002", "0004")
}

func settleOthers(e *law.Env) {
	src, other := e.Attach("g"), e.Attach("other")
	e.PublishN(2)
	ds := e.Receive(src, 2)
	e.Receive(other, 2)
	takeAway(e, ds[0])
	time.Sleep(e.Lease + e.Soon())
	comes(e, other, "0000", "0001")
	comes(e, src, "0001")
}

func settleHolder(e *law.Env) {
	src := e.AttachAs(backend.Config{Group: "g", Lease: 5 * e.Lease})
	e.PublishN(4)
	ds := e.Receive(src, 4)
	takeAway(e, ds[:3]...)
	e.Is("Extend of what an operator has settled", backend.ErrorAt(claimed(e, e.Extend(src, ds[0])), 0), backend.ErrLeaseLost)
	e.Is("Delay of what an operator has settled", backend.ErrorAt(claimed(e, e.Delay(src, 0, ds[1])), 0), backend.ErrLeaseLost)
	e.Is("Ack of what an operator has settled", backend.ErrorAt(src.Ack(e.Context(), backend.Lend(ds[2:3])), 0), backend.ErrLeaseLost)
	e.Must(e.Extend(src, ds[3]))
	e.Ack(src, ds[3])
	e.Nothing(src, e.Lease+e.Soon(), "all are settled")
}

func settleHolderUnfenced(e *law.Env) {
	src := e.Unconfirmed("g")
	e.PublishN(4)
	ds := e.Receive(src, 4)
	takeAway(e, ds[:3]...)
	for what, err := range map[string]error{
		"Extend": e.Extend(src, ds[0]), "Delay": e.Delay(src, 0, ds[1]), "Ack": src.Ack(e.Context(), backend.Lend(ds[2:3])),
	} {
		if err = backend.ErrorAt(claimed(e, err), 0); err != nil && !errors.Is(err, backend.ErrLeaseLost) {
			e.Failf("%s of what an operator has settled: got error %v, want none or %q", what, err, backend.ErrLeaseLost)
		}
	}
	e.Must(e.Extend(src, ds[3]))
	for end := time.Now().Add(11*time.Second + e.Grace); ; {
		e.Nothing(src, e.Lease/4, "all are settled or held")
		err := backend.ErrorAt(e.Extend(src, ds[0]), 0)
		if errors.Is(err, backend.ErrLeaseLost) {
			break
		}
		if e.Must(err); time.Now().After(end) {
			e.Failf("11 seconds after an operator has settled a message, its holder can extend it")
		}
		e.Must(e.Extend(src, ds[3]))
	}
	e.Ack(src, ds[3])
	e.Nothing(src, e.Lease+e.Soon(), "all are settled")
}

func settleSettled(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(3)
	ds := e.Receive(src, 3)
	takeAway(e, ds[0])
	e.Ack(src, ds[1])
	time.Sleep(e.Lease + e.Soon())
	for _, d := range ds[:2] { // a backend need not know that the group has settled it
		_, err := operator(e).Settle(e.Context(), law.Topic, "g", d.Position)
		e.Must(err)
	}
	comes(e, src, "0002")
}

func settleRefused(e *law.Env) {
	src := e.Attach("g")
	first := e.PublishN(1)[0]
	refuses(e, "of a message that was never received", law.Topic, "g", first.Position, backend.ErrRefused)
	for _, p := range []string{"", "x", "-1", strings.Repeat("9", 300)} {
		refuses(e, "at what is no position", law.Topic, "g", p, backend.ErrRefused)
	}
	comes(e, src, "0000")
}

func settleUnknown(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	refuses(e, "in a topic that does not exist", "nowhere", "g", d.Position, backend.ErrGone)
	refuses(e, "for a group that does not exist", law.Topic, "nobody", d.Position, backend.ErrGone)
	for _, of := range [][2]string{{"nowhere", "g"}, {law.Topic, "nobody"}} {
		_, err := e.Verbs().Settled(e.Context(), of[0], of[1], []string{d.Position})
		e.Is("Settled", claimed(e, err), backend.ErrGone)
	}
	e.Ack(src, d)
}

func settleLostReply(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	e.DropReply(law.RequestAck)
	_, err := e.Verbs().Settle(e.Context(), law.Topic, "g", d.Position)
	again := e.ReceiveWithin(src, 1, e.Lease+e.Soon()+e.Grace)
	if backend.NotStored(err) && len(again) == 0 {
		e.Failf("Settle whose answer is lost: got error %v, which says that it had no effect, but the message is not redelivered", err)
	}
	e.Ack(src, again...)
}

func settledReports(e *law.Env) {
	src := e.AttachAs(backend.Config{Group: "g", Lease: 10 * e.Lease})
	e.PublishN(6)
	ds := e.Receive(src, 6)
	e.Must(e.Delay(src, 10*e.Lease, ds[2:4]...))
	e.Must(e.Delay(src, 0, ds[4:]...))
	next := e.Publish(&backend.Message{ID: "next"})[0]
	takeAway(e, ds[1], ds[3], ds[5])
	expect := func(v verbs.Verbs, want ...bool) {
		e.Helper()
		got, err := v.Settled(e.Context(), law.Topic, "g", []string{
			ds[0].Position, ds[1].Position, ds[2].Position, ds[3].Position, ds[4].Position, ds[5].Position, next.Position,
		})
		e.Must(claimed(e, err))
		if !slices.Equal(got, want) {
			e.Failf("Settled of messages that are held, delayed, due and never received, each second one settled: got %v, want %v", got, want)
		}
	}
	for _, v := range []verbs.Verbs{e.Verbs(), operator(e)} {
		expect(v, false, true, false, true, false, true, false)
	}
	none, err := e.Verbs().Settled(e.Context(), law.Topic, "g", nil)
	if e.Must(claimed(e, err)); len(none) > 0 {
		e.Failf("Settled of no message: got %v", none)
	}
}
