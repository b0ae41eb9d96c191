package contract

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// fenceLaws are about a member whose delivery was redelivered to another member.
var fenceLaws = []law.Law{
	{
		ID: "C29", Name: "delay-fenced", Promise: "a member cannot give back a delivery that another member has taken over, and the other keeps it",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"unfenced", "lost-leases-hidden"}, Test: delayFenced,
	}, {
		ID: "L04", Name: "extend-fenced", Promise: "a member cannot extend a delivery that another member has taken over, and the other keeps it",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"unfenced", "lost-leases-hidden"}, Test: extendFenced,
	}, {
		ID: "C30", Name: "delay-settled", Promise: "an acknowledged message cannot be delayed, and is not redelivered",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"delay-publishes", "lost-leases-hidden"}, Test: delaySettled,
	}, {
		ID: "C31", Name: "extend-settled", Promise: "an acknowledged message cannot be extended, and is not redelivered",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"lost-leases-hidden"}, Test: extendSettled,
	}, {
		ID: "C58", Name: "ack-fenced", Promise: "a fenced Ack reports a lost lease and removes nothing if another member has taken over the message or it was acknowledged before; it still acknowledges an expired delivery that nobody took over",
		Needs:  []law.Need{law.NeedFence},
		Faults: []string{"unfenced"}, Test: ackFenced,
	}, {
		ID: "C32", Name: "delay-item-errors", Promise: "a lost delivery does not keep the others in its batch from being delayed, and the errors say which one was lost",
		Needs:  []law.Need{law.NeedDelayer},
		Faults: []string{"batches-fail-as-one"}, Test: delayItemErrors,
	}, {
		ID: "C33", Name: "extend-item-errors", Promise: "a lost delivery does not keep the others in its batch from being extended, and the errors say which one was lost",
		Needs:  []law.Need{law.NeedExtender},
		Faults: []string{"batches-fail-as-one"}, Test: extendItemErrors,
	}, {
		ID: "C75", Name: "foreign-refused", Promise: "Ack, Delay and Extend refuse a delivery from another group or driver, and the group's own message is redelivered",
		Faults: []string{"unfenced"}, Test: foreignRefused,
	}, {
		ID: "C76", Name: "each-delivery-fenced", Promise: "a delivery that was given back is lost, and so is the delivery before a redelivery, even if the attempt or the member is the same",
		Needs:  []law.Need{law.NeedRest},
		Faults: []string{"unfenced"}, Test: eachDeliveryFenced,
	}, {
		ID: "C77", Name: "ack-meets-expiry", Promise: "a fenced Ack at the end of a lease either removes the message or reports that another member has taken it over",
		Needs:  []law.Need{law.NeedFence},
		Faults: []string{"unfenced"}, Test: ackMeetsExpiry,
	},
}

// takenOver waits until the lease of a delivery to member one has expired and member two has
// received the message. It returns the stale delivery, and the earliest moment at which two
// can have received the message.
func takenOver(e *law.Env, one, two backend.Source) (stale backend.Delivery, since time.Time) {
	e.Helper()
	e.PublishN(1)
	start := time.Now()
	stale = e.One(one)
	e.One(two)
	return stale, start.Add(e.Lease)
}

func delayFenced(e *law.Env) {
	one, two := e.Attach("g"), e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	stale, since := takenOver(e, one, two)
	e.Is("Delay of a delivery that another holds", backend.ErrorAt(claimed(e, e.Delay(one, 0, stale)), 0), backend.ErrLeaseLost)
	e.One(one)
	e.NotBefore(since, 3*e.Lease, "it was taken from its new holder")
}

func extendFenced(e *law.Env) {
	one, two := e.AttachAs(backend.Config{Group: "g", Lease: e.Lease}), e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	stale, since := takenOver(e, one, two)
	e.Is("Extend of a delivery that another holds", backend.ErrorAt(claimed(e, e.Extend(one, stale)), 0), backend.ErrLeaseLost)
	e.One(one)
	e.NotBefore(since, 3*e.Lease, "it was taken from its new holder")
}

// claimed returns err, the result of an optional verb. But if err says that the backend lacks
// the verb, the law ends as not claimed.
func claimed(e *law.Env, err error) error {
	e.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		e.Verb(err)
	}
	return err
}

func delaySettled(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	e.Ack(src, d)
	e.Is("Delay of what is acknowledged", backend.ErrorAt(claimed(e, e.Delay(src, 0, d)), 0), backend.ErrLeaseLost)
	e.Nothing(src, e.Lease+e.Soon(), "it is acknowledged")
}

func extendSettled(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(1)
	d := e.One(src)
	e.Ack(src, d)
	e.Is("Extend of what is acknowledged", backend.ErrorAt(claimed(e, e.Extend(src, d)), 0), backend.ErrLeaseLost)
	e.Nothing(src, e.Lease+e.Soon(), "it is acknowledged")
}

func ackFenced(e *law.Env) {
	one, two := e.Attach("g"), e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	e.PublishN(2)
	stale := e.Receive(one, 2)
	start := time.Now()
	held := e.Receive(two, 2)
	e.Publish(&backend.Message{ID: "next"})
	next := e.One(one)
	err := one.Ack(e.Context(), []*backend.Delivery{&stale[0], &next, &stale[1]})
	for i, want := range []error{backend.ErrLeaseLost, nil, backend.ErrLeaseLost} {
		if got := backend.ErrorAt(err, i); !errors.Is(got, want) || (got != nil) != (want != nil) {
			e.Failf("Ack of what another holds and of what it does not, item %d: got error %v, want %v", i, got, want)
		}
	}
	e.Ack(two, held[0])
	e.Is("a second Ack", two.Ack(e.Context(), backend.Lend(held[:1])), backend.ErrLeaseLost)
	again := e.One(one)
	if again.ID != held[1].ID {
		e.Failf("got message %s, want %s, which nobody has acknowledged", again.ID, held[1].ID)
	}
	e.NotBefore(start.Add(e.Lease/2), 3*e.Lease, "it was taken from its holder")
	time.Sleep(e.Lease + e.Soon())
	e.Ack(one, again)
	e.Nothing(one, e.Lease+e.Soon(), "all are acknowledged")
}

func delayItemErrors(e *law.Env) {
	src, other := e.AttachAs(backend.Config{Group: "g", Lease: 5 * e.Lease}), e.Attach("g")
	e.PublishN(4)
	ds := e.Receive(src, 4)
	e.Ack(src, ds[1])
	waiting := e.Background(e.Bounded(), other, 3)
	time.Sleep(e.Lease / 4)
	start := time.Now()
	itemErrors(e, claimed(e, e.Delay(src, e.Lease, ds...)))
	r := <-waiting
	e.NotBefore(start, e.Lease, "what was delayed came back")
	e.By(start, e.Lease, "what was delayed came back")
	e.Must(r.Err)
	got := law.IDs(r.Deliveries)
	if more := 3 - len(got); more > 0 {
		got = append(got, law.IDs(e.Receive(other, more))...)
	}
	slices.Sort(got) // because law C24 tests the order
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func extendItemErrors(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(4)
	ds := e.Receive(src, 4)
	e.Ack(src, ds[1])
	time.Sleep(e.Lease / 2)
	start := time.Now()
	itemErrors(e, claimed(e, e.Extend(src, ds...)))
	got := law.IDs(e.Receive(src, 3))
	e.NotBefore(start, e.Lease, "what was extended came back")
	if want := []string{"0000", "0002", "0003"}; !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

// itemErrors expects that err has errors for four deliveries: ErrLeaseLost for the second,
// and none for the others.
func itemErrors(e *law.Env, err error) {
	e.Helper()
	for i := range 4 {
		got, lost := backend.ErrorAt(err, i), i == 1
		if errors.Is(got, backend.ErrLeaseLost) != lost || (got != nil) != lost {
			e.Failf("item %d: got error %v, want lost: %v", i, got, lost)
		}
	}
}

func foreignRefused(e *law.Env) {
	fenced, loose, other := e.Attach("g"), e.Unconfirmed("g"), e.Attach("other")
	e.PublishN(1)
	foreign := e.One(other)
	start := time.Now()
	d := e.One(fenced)
	none, strange := d, d
	none.Token, strange.Token = nil, struct{ driver string }{"another"}
	for _, c := range []struct {
		what string
		d    backend.Delivery
	}{{"a delivery of another group", foreign}, {"a delivery of another driver", strange}, {"a delivery without a Token", none}} {
		err := loose.Ack(e.Context(), []*backend.Delivery{&c.d})
		if !e.Limits.LooseAcks {
			e.Is("Ack without ConfirmAcks of "+c.what, err, backend.ErrRefused)
		}
		unheld(e, fenced, c.what, c.d, backend.ErrRefused)
	}
	e.One(loose)
	e.NotBefore(start, e.Lease, "it came back")
	e.By(start, e.Lease, "it came back")
}

// unheld expects that a member that does not hold the delivery d can neither give it back
// nor extend it, and that a fenced Ack of d fails. Each call returns an error that matches
// want.
func unheld(e *law.Env, src backend.Source, what string, d backend.Delivery, want error) {
	e.Helper()
	expect := func(call string, do func() error) {
		e.Helper()
		what := call + " of " + what
		e.Persist(what, func() error {
			err := backend.ErrorAt(do(), 0)
			if e.Troubled && law.Passing(err) {
				return err
			}
			e.Is(what, err, want)
			return nil
		})
	}
	if e.Limits.FencedAcks || errors.Is(want, backend.ErrRefused) {
		expect("Ack", func() error { return src.Ack(e.Context(), []*backend.Delivery{&d}) })
	}
	if _, ok := backend.As[backend.Delayer](src); ok {
		expect("Delay", func() error { return claimed(e, e.Delay(src, 0, d)) })
	}
	if _, ok := backend.As[backend.Extender](src); ok {
		expect("Extend", func() error { return claimed(e, e.Extend(src, d)) })
	}
}

func eachDeliveryFenced(e *law.Env) {
	one, two := e.Attach("g"), e.AttachAs(backend.Config{Group: "g", Lease: 3 * e.Lease})
	e.PublishN(1)
	d := e.One(one)
	if v, ok := backend.As[backend.Delayer](one); ok {
		for _, taker := range []backend.Source{two, one} {
			e.Verb(v.Delay(e.Context(), []backend.Delayed{{Delivery: d, Refund: e.Limits.Refund}}))
			unheld(e, one, "what was given back", d, backend.ErrLeaseLost)
			again := e.One(taker)
			unheld(e, one, "what was given back and redelivered", d, backend.ErrLeaseLost)
			d = again
			if taker == two {
				e.Verb(e.Delay(two, 0, d))
				d = e.One(one)
			}
		}
	}
	again := e.One(one)
	unheld(e, one, "a delivery before the last", d, backend.ErrLeaseLost)
	e.Ack(one, again)
	e.Nothing(one, e.Lease/4, "it is acknowledged")
}

// ackMeetsExpiry acknowledges many deliveries, each at another moment before or after their
// leases end, while another member waits for them.
func ackMeetsExpiry(e *law.Env) {
	const n, step = 40, 250 * time.Microsecond
	one, two := e.Attach("g"), e.AttachAs(backend.Config{Group: "g", Lease: 5 * e.Lease})
	e.PublishN(n)
	start := time.Now()
	held := e.Receive(one, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range held {
		wg.Go(func() {
			time.Sleep(time.Until(start.Add(e.Lease + time.Duration(i-n*3/4)*step)))
			errs[i] = one.Ack(e.Context(), []*backend.Delivery{&held[i]})
		})
	}
	taken := law.IDs(e.ReceiveWithin(two, n, e.Lease+e.Soon()))
	wg.Wait()
	for i, d := range held {
		if took := slices.Contains(taken, d.ID); errors.Is(errs[i], backend.ErrLeaseLost) != took || (errs[i] != nil) != took {
			e.Failf("message %s: got error %v from Ack, and another member has taken it: %v", d.ID, errs[i], took)
		}
	}
}
