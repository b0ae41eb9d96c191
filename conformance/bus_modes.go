package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busModeLaws are about when an event is acknowledged, and by whom.
var busModeLaws = []law{
	{
		id: "B.A01", name: "ack-on-success", promise: "an event is settled only when its handler has succeeded",
		saboteurs: []string{"bus-acks-on-receive"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 3 }))
			e.publishEvents(events(10)...)
			e.awaitDone(10, "g")
			e.checkHistory("g")
			e.settled("g")
		},
	},
	{
		id: "B.A02", name: "ack-on-receive", promise: "with AckOnReceive an event is settled before its handler runs: a failure does not bring it back, and is told as a discard",
		saboteurs: []string{"bus-acks-on-success"},
		bus: func(e *busEnv) {
			e.start()
			s := e.member("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID == "00003" || d.ID == "00007" }))
			e.publishEvents(events(20)...)
			e.awaitDone(18, "g")
			awaitTold[discarded](e, 2)
			e.settled("g")
			e.once("g")
			if c := s.Counts(); c.Discarded != 2 || c.Acknowledged != 20 {
				e.failf("got counts %+v, want 20 acknowledged and 2 discarded", c)
			}
		},
	},
	{
		id: "B.A03", name: "ack-on-receive-unconfirmed", promise: "with AckOnReceive a handler does not run unless the acknowledgement is confirmed within the lease; that is told as a discard",
		saboteurs: []string{"bus-acks-on-success"},
		bus: func(e *busEnv) {
			var broken atomic.Bool
			broken.Store(true)
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken, acks: true} })
			e.member("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive}, succeed)
			e.publishEvents(&eventbus.Event{ID: "x"})
			awaitTold[discarded](e, 1)
			if n := e.log.count(); n > 0 {
				e.failf("got %d runs, want none: the acknowledgement was not confirmed", n)
			}
			broken.Store(false)
			e.awaitDone(1, "g") // it was not settled: it comes again, and runs once
			e.quiet(e.lease + e.soon())
		},
	},
	{
		id: "B.A09", name: "ack-on-receive-frozen", promise: "with AckOnReceive an event runs at most once, even if a member was frozen for longer than its lease while a read was answered, and even if its clock stood still",
		needs: []need{needFence}, saboteurs: []string{"unfenced-acks"},
		bus: (*busEnv).frozenOnReceive,
	},
	{
		id: "B.A04", name: "manual", promise: "with SubscribeManual an event is held until the program settles it; Ack returns when it is settled, Nack brings it back, a second settlement is ErrSettled",
		needs: []need{needExtender}, saboteurs: []string{"bus-settles-manual"},
		bus: func(e *busEnv) {
			e.start()
			held := e.manual(eventbus.SubscribeOptions{})
			e.publishEvents(&eventbus.Event{ID: "x"})
			d := wait(e, held, "the program is handed an event")
			time.Sleep(3 * e.lease) // long held: its lease is kept
			e.must(d.Nack(e.Context(), errBroken))
			e.is("Ack after Nack", d.Ack(e.Context()), eventbus.ErrSettled)
			d = wait(e, held, "the program is handed an event")
			if d.Attempt != 2 {
				e.failf("got attempt %d after one Nack, want 2", d.Attempt)
			}
			e.must(d.Ack(e.Context()))
			if d.Context().Err() == nil {
				e.failf("the context of a settled event has not ended")
			}
			e.is("a second Ack", d.Ack(e.Context()), eventbus.ErrSettled)
			e.settled("g")
		},
	},
	{
		id: "B.A05", name: "manual-timeout", promise: "a held event whose Timeout passes has failed: its context ends, it comes again, and settling it is ErrLeaseLost",
		saboteurs: []string{"bus-without-timeouts"},
		bus: func(e *busEnv) {
			e.start()
			held := e.manual(eventbus.SubscribeOptions{Timeout: e.lease / 2})
			e.publishEvents(&eventbus.Event{ID: "x"})
			d := wait(e, held, "the program is handed an event")
			select {
			case <-d.Context().Done():
			case <-time.After(2 * e.lease):
			}
			if _, ok := errors.AsType[*eventbus.TimeoutError](context.Cause(d.Context())); !ok {
				e.failf("got cause %v, want a TimeoutError", context.Cause(d.Context()))
			}
			again := wait(e, held, "the program is handed an event")
			e.is("Ack of the first", d.Ack(e.Context()), eventbus.ErrLeaseLost)
			if again.Attempt != 2 {
				e.failf("got attempt %d, want 2", again.Attempt)
			}
			e.must(again.Ack(e.Context()))
			e.settled("g")
		},
	},
	{
		id: "B.A06", name: "manual-order", promise: "later events of a key wait until the program has settled the one before",
		needs: []need{needExtender}, saboteurs: []string{"bus-ignores-order"},
		bus: func(e *busEnv) {
			e.start()
			held := e.manual(eventbus.SubscribeOptions{Concurrency: 4})
			e.publishEvents(keyedEvents(3, 1)...)
			for _, want := range []string{"00000", "00001", "00002"} {
				d := wait(e, held, "the program is handed an event")
				select {
				case other := <-held:
					e.failf("got %s while %s is held", other.ID, d.ID)
				case <-time.After(e.soon()):
				}
				if d.ID != want {
					e.failf("got %s, want %s", d.ID, want)
				}
				e.must(d.Ack(e.Context()))
			}
		},
	},
	{
		id: "B.A07", name: "manual-places", promise: "what the program holds counts against MaxInFlight",
		needs: []need{needExtender}, saboteurs: []string{"bus-unbounded"},
		bus: func(e *busEnv) {
			e.start()
			held := e.manual(eventbus.SubscribeOptions{MaxInFlight: 3})
			e.publishEvents(events(10)...)
			var ds []*eventbus.ManualDelivery
			for range 3 {
				ds = append(ds, wait(e, held, "the program is handed an event"))
			}
			select {
			case d := <-held:
				e.failf("got %s as a fourth, want three at most", d.ID)
			case <-time.After(e.lease + e.soon()):
			}
			for len(ds) > 0 {
				e.must(ds[0].Ack(e.Context()))
				ds = ds[1:]
				if e.log.count() < 10 || len(held) > 0 {
					ds = append(ds, wait(e, held, "the program is handed an event"))
				}
			}
			e.settled("g")
		},
	},
	{
		id: "B.A08", name: "bounded", promise: "handlers running at once never exceed Concurrency, and what is held never exceeds MaxInFlight",
		saboteurs: []string{"bus-unbounded"},
		bus: func(e *busEnv) {
			e.start()
			var now, most atomic.Int64
			e.member("g", eventbus.SubscribeOptions{Concurrency: 5, MaxInFlight: 5}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.lease / 16)
				now.Add(-1)
				return nil
			})
			e.publishEvents(events(60)...)
			e.awaitDone(60, "g")
			if most.Load() != 5 {
				e.failf("got at most %d handlers at once, want 5", most.Load())
			}
		},
	},
}

// frozenOnReceive holds up the answer to the first read of a member until another has
// run everything. A clock that stood still is one by which the lease is four times as
// long as by the broker's.
func (e *busEnv) frozenOnReceive() {
	const n = 5
	for round, lease := range []time.Duration{e.lease, 4 * e.lease} {
		frozen := &freezing{lease: e.lease, read: make(chan struct{}), thaw: make(chan struct{})}
		e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
			frozen.Backend = b
			return frozen
		})
		o := eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive, Lease: lease}
		one := e.member("frozen", o, succeed)
		e.publishEvents(events((round + 1) * n)[round*n:]...)
		wait(e, frozen.read, "a read has brought something")
		two := e.member("g", o, succeed)
		e.awaitDone((round+1)*n, "g")
		close(frozen.thaw)
		e.quiet(e.lease + e.soon())
		e.must(one.Drain(e.Context()))
		e.must(two.Drain(e.Context()))
	}
}

// manual subscribes as the group g and passes on what it is handed.
func (e *busEnv) manual(o eventbus.SubscribeOptions) <-chan *eventbus.ManualDelivery {
	e.Helper()
	held := make(chan *eventbus.ManualDelivery, 100)
	_, err := e.bus.SubscribeManual(e.Context(), topic, e.options(o), func(_ context.Context, d *eventbus.ManualDelivery) error {
		e.log.begin("manual", d.Delivery)
		held <- d
		return nil
	})
	e.must(err)
	return held
}
