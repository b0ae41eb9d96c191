package conformance

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var ackLaws = []law{
	{
		id: "D10", name: "ack-is-forever", promise: "an acknowledged message never comes back, and no other is acknowledged with it",
		saboteurs: []string{"ignores-acks", "acks-all-it-holds"}, driver: ackIsForever,
	}, {
		id: "C16", name: "ack-twice", promise: "without ConfirmAcks acknowledging twice is not an error",
		saboteurs: []string{"refuses-second-acks"}, driver: ackTwice,
	}, {
		id: "C17", name: "ack-late", promise: "without ConfirmAcks an acknowledgement after the lease has passed removes, even if another member holds the message",
		saboteurs: []string{"fences-acks"}, driver: ackLate,
	}, {
		id: "C51", name: "many-callers", promise: "while one caller receives, others settle through the same source",
		saboteurs: []string{"one-ack-at-a-time"}, driver: manyCallers,
	}, {
		id: "C54", name: "lent-to-settle", promise: "what Ack and Extend are given stays as it is, and may be changed once they have returned",
		saboteurs: []string{"keeps-lent-deliveries", "clears-lent-deliveries"}, driver: lentToSettle,
	}, {
		id: "C18", name: "ack-unconfirmed", promise: "a member that does not ask for confirmation acknowledges for good all the same",
		saboteurs: []string{"drops-unconfirmed-acks"}, driver: ackUnconfirmed,
	}, {
		id: "C19", name: "ack-after-delay", promise: "without ConfirmAcks what was given back can still be acknowledged",
		needs:     []need{needDelayer},
		saboteurs: []string{"acks-only-held"}, driver: ackAfterDelay,
	},
}

func ackIsForever(e *driverEnv) {
	src := e.attach("g")
	want := idsOf(e.publishN(5))[3:]
	ds := e.receive(src, 5)
	e.ack(src, ds[:3]...)
	again := e.receive(src, 2)
	if got := ids(again); !slices.Equal(got, want) {
		e.failf("got %v back, want what was not acknowledged: %v", got, want)
	}
	e.ack(src, again...)
	e.nothing(src, 3*e.lease, "all are acknowledged")
}

func ackTwice(e *driverEnv) {
	src := e.unconfirmed("g")
	e.publishN(2)
	ds := e.receive(src, 2)
	e.ack(src, ds[0])
	e.ack(src, ds[0])
	e.ack(src, ds...)
	e.ack(src)
	e.nothing(src, e.lease+e.soon(), "both are acknowledged")
}

func ackLate(e *driverEnv) {
	one, two := e.unconfirmed("g"), e.attach("g")
	e.publishN(1)
	late := e.one(one)
	e.one(two) // the same, one lease later
	e.ack(one, late)
	e.nothing(two, 3*e.lease, "it is acknowledged")
}

func manyCallers(e *driverEnv) {
	src := e.unconfirmed("g") // the law acknowledges deliveries that it gave back
	const n = 100
	e.publishN(n)
	_, delays := backend.As[backend.Delayer](src)
	_, extends := backend.As[backend.Extender](src)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, d := range e.receive(src, n) {
		wg.Go(func() {
			switch {
			case i%3 == 0 && extends:
				errs[i] = e.extend(src, d)
			case i%3 == 1 && delays:
				errs[i] = e.delay(src, 0, d)
			}
			errs[i] = errors.Join(errs[i], src.Ack(e.Context(), []*backend.Delivery{&d}))
		})
	}
	e.receiveWithin(src, n, 10*time.Millisecond) // of what is delayed, whatever comes
	wg.Wait()
	e.verb(errors.Join(errs...))
	e.nothing(src, e.lease+e.soon(), "all are acknowledged")
}

func lentToSettle(e *driverEnv) {
	src := e.attach("g")
	e.publishN(4)
	ds := e.receive(src, 4)
	lent := slices.Clone(ds)
	if v, ok := backend.As[backend.Extender](src); ok {
		e.verb(v.Extend(e.Context(), backend.Lend(lent[:1])))
	}
	e.persist("Ack", func() error { return src.Ack(e.Context(), backend.Lend(lent)) })
	for i := range ds {
		e.same(&lent[i].Message, &ds[i].Message)
		if lent[i].Attempt != ds[i].Attempt || lent[i].Token != ds[i].Token {
			e.failf("got %v, want what was lent as it was: %v", lent[i], ds[i])
		}
	}
	clear(lent)
	e.nothing(src, e.lease+e.soon(), "all are acknowledged")
}

func ackUnconfirmed(e *driverEnv) {
	src := e.unconfirmed("g")
	e.publishN(20)
	e.ack(src, e.receive(src, 20)...)
	e.nothing(src, 2*e.lease, "all are acknowledged")
}

func ackAfterDelay(e *driverEnv) {
	src := e.unconfirmed("g")
	e.publishN(1)
	d := e.one(src)
	e.verb(e.delay(src, e.lease, d))
	e.ack(src, d)
	e.nothing(src, 2*e.lease+e.soon(), "it is acknowledged")
}
