package contract

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

var ackLaws = []law.Law{
	{
		ID: "D10", Name: "ack-is-forever", Promise: "an acknowledged message is never redelivered, and no other message is acknowledged with it",
		Faults: []string{"ack-ignored"}, Test: ackIsForever,
	}, {
		ID: "C16", Name: "ack-twice", Promise: "without ConfirmAcks, acknowledging twice is not an error",
		Faults: []string{"settle-once"}, Test: ackTwice,
	}, {
		ID: "C17", Name: "ack-late", Promise: "without ConfirmAcks, an acknowledgement after the lease has expired removes the message, even if another member holds it",
		Faults: []string{"ack-only-held"}, Test: ackLate,
	}, {
		ID: "C51", Name: "many-callers", Promise: "while one caller receives, others can settle through the same source",
		Faults: []string{"ack-ignored", "ack-only-held"}, Test: manyCallers,
	}, {
		ID: "C54", Name: "lent-to-settle", Promise: "Ack and Extend leave their arguments unchanged, and the caller may modify them afterwards",
		Faults: []string{"lent-memory-kept"}, Test: lentToSettle,
	}, {
		ID: "C18", Name: "ack-unconfirmed", Promise: "a member that does not ask for confirmation still acknowledges for good",
		Faults: []string{"ack-ignored"}, Test: ackUnconfirmed,
	}, {
		ID: "C19", Name: "ack-after-delay", Promise: "without ConfirmAcks, a message that was given back can still be acknowledged",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"ack-only-held"}, Test: ackAfterDelay,
	}, {
		ID: "C79", Name: "settle-none", Promise: "Ack, Delay and Extend without deliveries are not errors",
		Faults: []string{"settle-none-refused"}, Test: settleNone,
	}, {
		ID: "C80", Name: "ack-done-context", Promise: "an Ack whose context is done says whether it may have had an effect",
		Faults: []string{"calls-ignore-contexts"}, Test: ackDoneContext,
	},
}

func ackIsForever(e *law.Env) {
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(5))[3:]
	ds := e.Receive(src, 5)
	e.Ack(src, ds[:3]...)
	again := e.Receive(src, 2)
	if got := law.IDs(again); !slices.Equal(got, want) {
		e.Failf("got %v back, want what was not acknowledged: %v", got, want)
	}
	e.Ack(src, again...)
	e.Nothing(src, 3*e.Lease, "all are acknowledged")
}

func ackTwice(e *law.Env) {
	src := e.Unconfirmed("g")
	e.PublishN(2)
	ds := e.Receive(src, 2)
	e.Ack(src, ds[0])
	e.Ack(src, ds[0])
	e.Ack(src, ds...)
	e.Ack(src)
	e.Nothing(src, e.Lease+e.Soon(), "both are acknowledged")
}

func ackLate(e *law.Env) {
	one, two := e.Unconfirmed("g"), e.Attach("g")
	e.PublishN(1)
	late := e.One(one)
	e.One(two) // member two receives the same message, one lease later
	e.Ack(one, late)
	e.Nothing(two, 3*e.Lease, "it is acknowledged")
}

func manyCallers(e *law.Env) {
	src := e.Unconfirmed("g") // the law acknowledges deliveries that it gave back
	const n = 100
	e.PublishN(n)
	_, delays := backend.As[backend.Delayer](src)
	_, extends := backend.As[backend.Extender](src)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, d := range e.Receive(src, n) {
		wg.Go(func() {
			switch {
			case i%3 == 0 && extends:
				errs[i] = e.Extend(src, d)
			case i%3 == 1 && delays:
				errs[i] = e.Delay(src, 0, d)
			}
			errs[i] = errors.Join(errs[i], src.Ack(e.Context(), []*backend.Delivery{&d}))
		})
	}
	e.ReceiveWithin(src, n, 10*time.Millisecond) // receives the delayed messages that no Ack has settled yet, if any
	wg.Wait()
	e.Verb(errors.Join(errs...))
	e.Nothing(src, e.Lease+e.Soon(), "all are acknowledged")
}

func lentToSettle(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(4)
	ds := e.Receive(src, 4)
	lent := slices.Clone(ds)
	if v, ok := backend.As[backend.Extender](src); ok {
		e.Verb(v.Extend(e.Context(), backend.Lend(lent[:1])))
	}
	e.Persist("Ack", func() error { return src.Ack(e.Context(), backend.Lend(lent)) })
	for i := range ds {
		same(e, &lent[i].Message, &ds[i].Message)
		if lent[i].Attempt != ds[i].Attempt || lent[i].Token != ds[i].Token {
			e.Failf("got %v, want what was lent as it was: %v", lent[i], ds[i])
		}
	}
	clear(lent)
	e.Nothing(src, e.Lease+e.Soon(), "all are acknowledged")
}

func ackUnconfirmed(e *law.Env) {
	src := e.Unconfirmed("g")
	e.PublishN(20)
	e.Ack(src, e.Receive(src, 20)...)
	e.Nothing(src, 2*e.Lease, "all are acknowledged")
}

func ackAfterDelay(e *law.Env) {
	src := e.Unconfirmed("g")
	e.PublishN(1)
	d := e.One(src)
	e.Verb(e.Delay(src, e.Lease, d))
	e.Ack(src, d)
	e.Nothing(src, 2*e.Lease+e.Soon(), "it is acknowledged")
}

func settleNone(e *law.Env) {
	src := e.Attach("g")
	for range 2 { // in the second round the member holds a delivery
		e.Must(src.Ack(e.Context(), nil))
		if _, ok := backend.As[backend.Delayer](src); ok {
			e.Verb(e.Delay(src, 0))
		}
		if _, ok := backend.As[backend.Extender](src); ok {
			e.Verb(e.Extend(src))
		}
		e.PublishN(1)
		e.One(src)
	}
}

func ackDoneContext(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	err := backend.ErrorAt(src.Ack(ctx, []*backend.Delivery{&d}), 0)
	class := backend.Class(err)
	if err != nil && class == nil {
		e.Failf("got error %v, want one that matches an error class, such as %q", err, backend.ErrUnknownOutcome)
	}
	back := len(e.ReceiveWithin(src, 1, e.Lease+e.Soon())) > 0
	switch {
	case err == nil && back:
		e.Failf("got no error, and the message came back")
	case err != nil && !errors.Is(class, backend.ErrUnknownOutcome) && !back:
		e.Failf("got error %v, which says that the message is not removed, and it did not come back", err)
	}
}
