package conformance

import (
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// What a member may no longer do to a delivery that is not its own.
var fenceLaws = []law{
	{
		id: "C29", name: "delay-fenced", promise: "a member whose delivery another has taken cannot give it back, and the other keeps it",
		needs:     []need{needDelayer},
		saboteurs: []string{"unfenced-delays", "moves-lost-deliveries", "loses-leases-in-silence"}, driver: delayFenced,
	}, {
		id: "L04", name: "extend-fenced", promise: "a member whose delivery another has taken cannot extend it, and the other keeps it",
		needs:     []need{needExtender},
		saboteurs: []string{"unfenced-extends", "moves-lost-deliveries", "loses-leases-in-silence"}, driver: extendFenced,
	}, {
		id: "C30", name: "delay-settled", promise: "what is acknowledged cannot be delayed, and does not come back",
		needs:     []need{needDelayer},
		saboteurs: []string{"delays-revive", "loses-leases-in-silence"}, driver: delaySettled,
	}, {
		id: "C31", name: "extend-settled", promise: "what is acknowledged cannot be extended, and does not come back",
		needs:     []need{needExtender},
		saboteurs: []string{"loses-leases-in-silence"}, driver: extendSettled,
	}, {
		id: "C58", name: "ack-fenced", promise: "a fenced Ack is told of a lost lease and removes nothing where another has taken the message, or where it was acknowledged before; an expired delivery that nobody took it acknowledges",
		needs:     []need{needFence},
		saboteurs: []string{"unfenced-acks"}, driver: ackFenced,
	}, {
		id: "C32", name: "delay-item-errors", promise: "a lost delivery does not keep the others of its batch from being delayed, and the errors say which",
		needs:     []need{needDelayer},
		saboteurs: []string{"blurs-lost-leases"}, driver: delayItemErrors,
	}, {
		id: "C33", name: "extend-item-errors", promise: "a lost delivery does not keep the others of its batch from being extended, and the errors say which",
		needs:     []need{needExtender},
		saboteurs: []string{"blurs-lost-leases"}, driver: extendItemErrors,
	},
}

// taken returns a delivery of one that two has taken since, and when two did so
// at the earliest.
func (e *driverEnv) taken(one, two backend.Source) (stale backend.Delivery, since time.Time) {
	e.Helper()
	e.publishN(1)
	start := time.Now()
	stale = e.one(one)
	e.one(two)
	return stale, start.Add(e.lease)
}

func delayFenced(e *driverEnv) {
	one, two := e.attach("g"), e.attachAs(backend.Config{Group: "g", Lease: 3 * e.lease})
	stale, since := e.taken(one, two)
	e.is("Delay of a delivery that another holds", backend.ErrorAt(e.fenced(e.delay(one, 0, stale)), 0), backend.ErrLeaseLost)
	e.one(one)
	e.notBefore(since, 3*e.lease, "it was taken from its new holder")
}

func extendFenced(e *driverEnv) {
	one, two := e.attachAs(backend.Config{Group: "g", Lease: e.lease}), e.attachAs(backend.Config{Group: "g", Lease: 3 * e.lease})
	stale, since := e.taken(one, two)
	e.is("Extend of a delivery that another holds", backend.ErrorAt(e.fenced(e.extend(one, stale)), 0), backend.ErrLeaseLost)
	e.one(one)
	e.notBefore(since, 3*e.lease, "it was taken from its new holder")
}

// fenced passes an error of a verb on, unless the verb is not offered.
func (e *driverEnv) fenced(err error) error {
	e.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		e.verb(err)
	}
	return err
}

func delaySettled(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	d := e.one(src)
	e.ack(src, d)
	e.is("Delay of what is acknowledged", backend.ErrorAt(e.fenced(e.delay(src, 0, d)), 0), backend.ErrLeaseLost)
	e.nothing(src, e.lease+e.soon(), "it is acknowledged")
}

func extendSettled(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	d := e.one(src)
	e.ack(src, d)
	e.is("Extend of what is acknowledged", backend.ErrorAt(e.fenced(e.extend(src, d)), 0), backend.ErrLeaseLost)
	e.nothing(src, e.lease+e.soon(), "it is acknowledged")
}

func ackFenced(e *driverEnv) {
	one, two := e.attach("g"), e.attachAs(backend.Config{Group: "g", Lease: 3 * e.lease})
	e.publishN(2)
	stale := e.receive(one, 2)
	start := time.Now()
	held := e.receive(two, 2)
	e.publish(&backend.Message{ID: "next"})
	next := e.one(one)
	err := one.Ack(e.Context(), []*backend.Delivery{&stale[0], &next, &stale[1]})
	for i, want := range []error{backend.ErrLeaseLost, nil, backend.ErrLeaseLost} {
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (got != nil) != (want != nil) {
			e.failf("Ack of what another holds and of what it does not, item %d: got error %v, want %v", i, got, want)
		}
	}
	e.ack(two, held[0])
	e.is("a second Ack", two.Ack(e.Context(), backend.Lend(held[:1])), backend.ErrLeaseLost)
	again := e.one(one)
	if again.ID != held[1].ID {
		e.failf("got message %s, want %s, which nobody has acknowledged", again.ID, held[1].ID)
	}
	e.notBefore(start.Add(e.lease/2), 3*e.lease, "it was taken from its holder")
	time.Sleep(e.lease + e.soon())
	e.ack(one, again)
	e.nothing(one, e.lease+e.soon(), "all are acknowledged")
}

func delayItemErrors(e *driverEnv) {
	src := e.attach("g")
	e.publishN(4)
	ds := e.receive(src, 4)
	e.ack(src, ds[1])
	start := time.Now()
	e.itemErrors(e.fenced(e.delay(src, 2*e.lease, ds...)))
	got := slices.Sorted(slices.Values(ids(e.receive(src, 3)))) // their order is what C24 is about
	e.notBefore(start, 2*e.lease, "what was delayed came back")
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
}

func extendItemErrors(e *driverEnv) {
	src := e.attach("g")
	e.publishN(4)
	ds := e.receive(src, 4)
	e.ack(src, ds[1])
	time.Sleep(e.lease / 2)
	start := time.Now()
	e.itemErrors(e.fenced(e.extend(src, ds...)))
	got := ids(e.receive(src, 3))
	e.notBefore(start, e.lease, "what was extended came back")
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.failf("got %v, want %v", got, want)
	}
}

// itemErrors expects that the second of four was lost, and no other.
func (e *driverEnv) itemErrors(err error) {
	e.Helper()
	for i := range 4 {
		got, lost := backend.ErrorAt(err, i), i == 1
		if errors.Is(got, backend.ErrLeaseLost) != lost || (got != nil) != lost {
			e.failf("item %d: got error %v, want lost: %v", i, got, lost)
		}
	}
}
