package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// batchLaws are about batch handlers.
var batchLaws = []law.Law{
	{
		ID: "B.B01", Name: "batch-results", Promise: "each event in a batch has its own result: failed events are redelivered with the next attempt number, and the others are settled",
		Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			fails := func(d *eventbus.Delivery) bool { return d.ID == "00004" && d.Attempt < 3 }
			e.BatchMember("g", eventbus.SubscribeOptions{}, eventbus.Batch{MaxWait: e.Lease / 20}, results(fails))
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(20, "g")
			for _, h := range ordered(e, "g") {
				if h.Delivery.Attempt > 1 && h.Delivery.ID != "00004" {
					e.Failf("%s was handled again, but only 00004 had failed\nrecorded: %s", h.Delivery.ID, e.Recorder.Summary())
				}
			}
			e.CheckHistory("g")
		}),
	},
	{
		ID: "B.B02", Name: "batch-poison", Promise: "an event that makes every call panic is dead-lettered alone, without the rest of its batch",
		Engine: true, Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			poisonous := func(d *eventbus.Delivery) bool { return d.ID == "00002" }
			o := eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}}
			e.BatchMember("g", o, eventbus.Batch{MaxWait: e.Lease / 20}, func(_ context.Context, ds []*eventbus.Delivery) []error {
				if slices.ContainsFunc(ds, poisonous) {
					panic("poison")
				}
				return nil
			})
			e.PublishEvents(buslaw.Events(6)...)
			e.AwaitDone(5, "g")
			if dead := buslaw.AwaitObserved[deadLettered](e, 1); dead[0].ID != "00002" {
				e.Failf("%s went to the dead-letter topic, want 00002 alone", dead[0].ID)
			}
		}),
	},
	{
		ID: "B.B03", Name: "batch-order", Promise: "a batch contains at most one event per key, and the events of a key are handled in order, retries included",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var twice atomic.Bool
			fails := results(func(d *eventbus.Delivery) bool { return d.ID == "00005" && d.Attempt == 1 })
			e.BatchMember("g", eventbus.SubscribeOptions{}, eventbus.Batch{MaxSize: 4}, func(ctx context.Context, ds []*eventbus.Delivery) []error {
				keys := map[string]bool{}
				for _, d := range ds {
					if keys[d.Key] {
						twice.Store(true)
					}
					keys[d.Key] = true
				}
				return fails(ctx, ds)
			})
			e.PublishEvents(buslaw.KeyedEvents(60, 6)...)
			e.AwaitDone(60, "g")
			if twice.Load() {
				e.Failf("a batch had two events of a key, want one at most")
			}
			inOrder(e, "g")
			e.CheckHistory("g")
		}),
	},
	{
		ID: "B.B04", Name: "batch-wait", Promise: "a batch that is not full is handled once MaxWait has passed",
		Engine: true, Faults: []string{"bus-ignores-timeouts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			wait := e.Lease / 20
			e.BatchMember("g", eventbus.SubscribeOptions{}, eventbus.Batch{MaxWait: wait}, results(nil))
			e.PublishEvents(buslaw.Events(3)...)
			start := time.Now()
			e.AwaitDone(3, "g")
			e.By(start, wait, "the batch was handled")
		}),
	},
	{
		ID: "B.B05", Name: "batch-drain", Promise: "a drain does not wait for a batch to fill up, but handles the events already in it",
		Needs: []law.Need{law.NeedExtender}, Engine: true, Faults: []string{"bus-drops-batches"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.BatchMember("g", eventbus.SubscribeOptions{}, eventbus.Batch{MaxWait: time.Hour}, results(nil))
			e.PublishEvents(buslaw.Events(7)...)
			for until := time.Now().Add(e.Soon()); s.Counts().Held < 7; time.Sleep(e.Lease / 100) {
				if time.Now().After(until) {
					e.Failf("7 events do not gather: %+v", s.Counts())
				}
			}
			start := time.Now()
			e.Must(s.Drain(e.Context()))
			e.By(start, 0, "the drain ended")
			e.AwaitDone(7, "g")
			e.CheckHistory("g")
		}),
	},
	{
		ID: "B.B06", Name: "batch-bounds", Promise: "a batch has at most MaxSize events and MaxBytes of payload, and at most Concurrency calls run at once",
		Engine: true, Faults: []string{"bus-exceeds-limits"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			bounds := eventbus.Batch{MaxSize: 3, MaxBytes: 40, MaxWait: e.Lease / 20}
			es := buslaw.Events(40)
			for i := 0; i < len(es); i += 10 {
				es[i].Payload = make([]byte, 35) // MaxBytes is 40, so this event leaves no room for another in its batch
			}
			e.PublishEvents(es...) // the member subscribes later, so that its batches fill
			var now, most atomic.Int64
			var broken atomic.Value
			e.BatchMember("g", eventbus.SubscribeOptions{Concurrency: 2}, bounds, func(_ context.Context, ds []*eventbus.Delivery) []error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				if bytes := payloads(ds); len(ds) > bounds.MaxSize || bytes > bounds.MaxBytes && len(ds) > 1 {
					broken.Store(fmt.Sprintf("%d events with %d bytes", len(ds), bytes))
				}
				time.Sleep(e.Lease / 50)
				return nil
			})
			e.AwaitDone(40, "g")
			if got := broken.Load(); got != nil {
				e.Failf("got a batch of %v, want at most %d events and %d bytes", got, bounds.MaxSize, bounds.MaxBytes)
			}
			if most.Load() > 2 {
				e.Failf("got %d calls at once, want at most 2", most.Load())
			}
		}),
	},
	{
		ID: "B.B07", Name: "batch-timeout", Promise: "when Timeout has passed, the call's context ends with a TimeoutError, and the failed events are redelivered",
		Engine: true, Faults: []string{"bus-ignores-timeouts", "bus-ignores-contexts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			o := eventbus.SubscribeOptions{Timeout: e.Lease / 8}
			e.BatchMember("g", o, eventbus.Batch{MaxWait: e.Lease / 40}, func(ctx context.Context, ds []*eventbus.Delivery) []error {
				if ds[0].Attempt > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
				case <-time.After(e.Lease):
				}
				return slices.Repeat([]error{buslaw.ErrBroken}, len(ds))
			})
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.AwaitDone(1, "g")
			first := e.Recorder.All("g")[0]
			if _, ok := errors.AsType[*observer.TimeoutError](first.Cause); !ok {
				e.Failf("got cause %v, want a TimeoutError", first.Cause)
			}
		}),
	},
	{
		ID: "B.B08", Name: "batch-deadline", Promise: "when a drain times out, the contexts of running calls end with cause ErrShutdown, and failed events are redelivered",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-contexts"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			running, release := make(chan int, 100), make(chan struct{})
			e.Cleanup(func() { close(release) })
			s := e.BatchMember("g", eventbus.SubscribeOptions{}, eventbus.Batch{MaxSize: 5}, func(ctx context.Context, ds []*eventbus.Delivery) []error {
				running <- len(ds)
				select {
				case <-ctx.Done():
				case <-release:
				}
				return slices.Repeat([]error{buslaw.ErrBroken}, len(ds))
			})
			e.PublishEvents(buslaw.Events(12)...)
			n := buslaw.Wait(e, running, "a call runs")
			ctx, cancel := context.WithTimeout(e.Context(), e.Lease/20)
			defer cancel()
			_ = s.Drain(ctx) // an error may name events that are not settled yet
			runs := e.Recorder.All("g")
			for _, h := range runs[:min(n, len(runs))] {
				if !errors.Is(h.Cause, eventbus.ErrShutdown) {
					e.Failf("got cause %v of %s, want ErrShutdown", h.Cause, h.Delivery.ID)
				}
			}
			e.BatchMember("other", eventbus.SubscribeOptions{}, eventbus.Batch{}, results(nil))
			e.AwaitDone(12, "other")
		}),
	},
	{
		ID: "B.B09", Name: "batch-on-receive", Promise: "with AckOnReceive, each event in a batch is settled before the call: failed events are not redelivered, and are reported as discarded",
		Faults: []string{"bus-acks-on-success"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			fails := func(d *eventbus.Delivery) bool { return d.ID == "00003" || d.ID == "00007" }
			e.BatchMember("g", eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive}, eventbus.Batch{MaxWait: e.Lease / 40}, results(fails))
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(18, "g")
			if ds := buslaw.AwaitObserved[discarded](e, 2); !fails(&eventbus.Delivery{Event: eventbus.Event{ID: ds[0].ID}}) {
				e.Failf("%s was discarded, want 00003 and 00007 only", ds[0].ID)
			}
			once(e, "g")
		}),
	},
}

// payloads returns the sum of the payloads in bytes.
func payloads(ds []*eventbus.Delivery) (bytes int64) {
	for _, d := range ds {
		bytes += int64(len(d.Payload))
	}
	return bytes
}

// results returns a batch handler that fails each event for which fails returns true.
// If fails is nil, no event fails.
func results(fails func(*eventbus.Delivery) bool) eventbus.BatchHandler {
	return func(_ context.Context, ds []*eventbus.Delivery) []error {
		errs := make([]error, len(ds))
		for i, d := range ds {
			if fails != nil && fails(d) {
				errs[i] = buslaw.ErrBroken
			}
		}
		return errs
	}
}
