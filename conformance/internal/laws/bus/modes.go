package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// modeLaws are about the acknowledgement modes, and about manual settlement.
var modeLaws = []law.Law{
	{
		ID: "B.A01", Name: "ack-on-success", Promise: "an event is settled only after its handler has succeeded",
		Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 3 }))
			e.PublishEvents(buslaw.Events(10)...)
			e.AwaitDone(10, "g")
			e.CheckHistory("g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.A02", Name: "ack-on-receive", Promise: "with AckOnReceive, an event is settled before its handler runs: a failed event is not redelivered, and is reported as discarded",
		Faults: []string{"bus-acks-on-success"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID == "00003" || d.ID == "00007" }))
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(18, "g")
			buslaw.AwaitObserved[discarded](e, 2)
			e.Settled("g")
			once(e, "g")
			if c := s.Counts(); c.Discarded != 2 || c.Acknowledged != 20 {
				e.Failf("got counts %+v, want 20 acknowledged and 2 discarded", c)
			}
		}),
	},
	{
		ID: "B.A03", Name: "ack-on-receive-unconfirmed", Promise: "with AckOnReceive, a handler runs only if the acknowledgement is confirmed within the lease; otherwise the event is reported as discarded",
		Faults: []string{"bus-acks-on-success"},
		Test: buslaw.On(func(e *buslaw.Env) {
			var broken atomic.Bool
			broken.Store(true)
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &unsettling{Backend: b, broken: &broken, acks: true} })
			e.Member("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive}, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{ID: "x"})
			buslaw.AwaitObserved[discarded](e, 1)
			if n := e.Recorder.Count(); n > 0 {
				e.Failf("got %d runs, want none: the acknowledgement was not confirmed", n)
			}
			broken.Store(false)
			e.AwaitDone(1, "g") // its lease expires, and the redelivery runs
			e.Quiet(e.Lease + e.Soon())
		}),
	},
	{
		ID: "B.A09", Name: "ack-on-receive-frozen", Promise: "with AckOnReceive, an event runs at most once, even if a member was frozen for longer than its lease while a read was being answered, and even if its clock stood still",
		Needs: []law.Need{law.NeedFence}, Faults: []string{"unfenced"},
		Test: buslaw.On(frozenOnReceive),
	},
	{
		ID: "B.A04", Name: "manual", Promise: "with SubscribeManual, an event is held until the program settles it: Ack returns once it is settled, Nack has it redelivered, and settling it twice is ErrSettled",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-settles-manual"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			held := manual(e, eventbus.SubscribeOptions{})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			d := buslaw.Wait(e, held, "the program is handed an event")
			time.Sleep(3 * e.Lease) // the bus extends the lease meanwhile
			e.Must(d.Nack(e.Context(), buslaw.ErrBroken))
			e.Is("Ack after Nack", d.Ack(e.Context()), eventbus.ErrSettled)
			d = buslaw.Wait(e, held, "the program is handed an event")
			if d.Attempt != 2 {
				e.Failf("got attempt %d after one Nack, want 2", d.Attempt)
			}
			e.Must(d.Ack(e.Context()))
			if d.Context().Err() == nil {
				e.Failf("the context of a settled event has not ended")
			}
			e.Is("a second Ack", d.Ack(e.Context()), eventbus.ErrSettled)
			e.Settled("g")
		}),
	},
	{
		ID: "B.A05", Name: "manual-timeout", Promise: "a held event fails when its Timeout expires: its context ends, it is redelivered, and settling it is ErrLeaseLost",
		Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			held := manual(e, eventbus.SubscribeOptions{Timeout: e.Lease / 2})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			d := buslaw.Wait(e, held, "the program is handed an event")
			select {
			case <-d.Context().Done():
			case <-time.After(2 * e.Lease):
			}
			if _, ok := errors.AsType[*observer.TimeoutError](context.Cause(d.Context())); !ok {
				e.Failf("got cause %v, want a TimeoutError", context.Cause(d.Context()))
			}
			again := buslaw.Wait(e, held, "the program is handed an event")
			e.Is("Ack of the first", d.Ack(e.Context()), eventbus.ErrLeaseLost)
			if again.Attempt != 2 {
				e.Failf("got attempt %d, want 2", again.Attempt)
			}
			e.Must(again.Ack(e.Context()))
			e.Settled("g")
		}),
	},
	{
		ID: "B.A06", Name: "manual-order", Promise: "later events of a key wait until the program has settled the previous one",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			held := manual(e, eventbus.SubscribeOptions{Concurrency: 4})
			e.PublishEvents(buslaw.KeyedEvents(3, 1)...)
			for _, want := range []string{"00000", "00001", "00002"} {
				d := buslaw.Wait(e, held, "the program is handed an event")
				select {
				case other := <-held:
					e.Failf("got %s while %s is held", other.ID, d.ID)
				case <-time.After(e.Soon()):
				}
				if d.ID != want {
					e.Failf("got %s, want %s", d.ID, want)
				}
				e.Must(d.Ack(e.Context()))
			}
		}),
	},
	{
		ID: "B.A07", Name: "manual-max-in-flight", Promise: "events that the program holds count against MaxInFlight",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-exceeds-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			held := manual(e, eventbus.SubscribeOptions{MaxInFlight: 3})
			e.PublishEvents(buslaw.Events(10)...)
			var ds []*eventbus.ManualDelivery
			for range 3 {
				ds = append(ds, buslaw.Wait(e, held, "the program is handed an event"))
			}
			select {
			case d := <-held:
				e.Failf("got %s as a fourth, want three at most", d.ID)
			case <-time.After(e.Lease + e.Soon()):
			}
			for len(ds) > 0 {
				e.Must(ds[0].Ack(e.Context()))
				ds = ds[1:]
				if e.Recorder.Count() < 10 || len(held) > 0 {
					ds = append(ds, buslaw.Wait(e, held, "the program is handed an event"))
				}
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.A10", Name: "manual-any-middleware", Promise: "a program can settle an event from SubscribeManual whatever context a middleware passes to the handler",
		Engine: true, Faults: []string{"bus-settles-manual"},
		Test: buslaw.On(func(e *buslaw.Env) {
			replace := func(next eventbus.Handler) eventbus.Handler {
				return func(_ context.Context, d *eventbus.Delivery) error { return next(e.Context(), d) }
			}
			e.Open(eventbus.Options{Middleware: []eventbus.Middleware{replace}}, nil)
			held := manual(e, eventbus.SubscribeOptions{})
			e.PublishEvents(buslaw.Events(2)...)
			settle := func(d *eventbus.ManualDelivery, call func() error) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("it panicked: %v", v)
					}
				}()
				if err := d.Context().Err(); err != nil {
					return fmt.Errorf("its context is done before it is settled: %w", err)
				}
				return call()
			}
			for range 2 {
				d := buslaw.Wait(e, held, "the program is handed an event")
				e.Must(settle(d, func() error { return d.Ack(e.Context()) }))
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.A08", Name: "bounded", Promise: "the number of running handlers never exceeds Concurrency, and the number of held events never exceeds MaxInFlight",
		Engine: true, Faults: []string{"bus-exceeds-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var now, most atomic.Int64
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 5, MaxInFlight: 5}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.Lease / 16)
				now.Add(-1)
				return nil
			})
			e.PublishEvents(buslaw.Events(60)...)
			e.AwaitDone(60, "g")
			if most.Load() != 5 {
				e.Failf("got at most %d handlers at once, want 5", most.Load())
			}
		}),
	},
}

// frozenOnReceive runs two rounds. In each round, it delays the first deliveries of a member
// until another member has handled every event. In the second round, the bus asks for a
// lease four times as long as the lease that the broker grants. The longer lease simulates a
// member with a slow clock.
func frozenOnReceive(e *buslaw.Env) {
	const n = 5
	for round, lease := range []time.Duration{e.Lease, 4 * e.Lease} {
		frozen := &freezing{lease: e.Lease, read: make(chan struct{}), thaw: make(chan struct{})}
		e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
			frozen.Backend = b
			return frozen
		})
		o := eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive, Lease: lease}
		one := e.Member("frozen", o, buslaw.Succeed)
		e.PublishEvents(buslaw.Events((round + 1) * n)[round*n:]...)
		buslaw.Wait(e, frozen.read, "a read has brought something")
		two := e.Member("g", o, buslaw.Succeed)
		e.AwaitDone((round+1)*n, "g")
		close(frozen.thaw)
		e.Quiet(e.Lease + e.Soon())
		e.Must(one.Drain(e.Context()))
		e.Must(two.Drain(e.Context()))
	}
}

// manual subscribes with the group g. It sends each delivery to the channel that it
// returns.
func manual(e *buslaw.Env, o eventbus.SubscribeOptions) <-chan *eventbus.ManualDelivery {
	e.Helper()
	held := make(chan *eventbus.ManualDelivery, 100)
	_, err := e.Bus.SubscribeManual(e.Context(), law.Topic, e.Options(o), func(_ context.Context, d *eventbus.ManualDelivery) error {
		e.Recorder.Begin("manual", d.Delivery)
		held <- d
		return nil
	})
	e.Must(err)
	return held
}
