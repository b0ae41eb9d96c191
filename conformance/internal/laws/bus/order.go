package bus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// orderLaws are about the order of events, by key or in total.
var orderLaws = []law.Law{
	{
		ID: "B.O01", Name: "key-order", Promise: "the events of a key are handled one after another in publishing order, whatever the concurrency",
		Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 16}, func(_ context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
				return nil
			})
			e.PublishEvents(buslaw.KeyedEvents(1000, 10)...)
			e.AwaitDone(1000, "g")
			inOrder(e, "g")
		}),
	},
	{
		ID: "B.O02", Name: "key-order-retry", Promise: "while an event waits for its retry, later events of its key wait too",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 16}, failing(func(d *eventbus.Delivery) bool {
				return strings.HasSuffix(d.ID, "3") && d.Attempt < 3 || strings.HasSuffix(d.ID, "8") && d.Attempt < 2
			}))
			e.PublishEvents(buslaw.KeyedEvents(100, 4)...) // 25 events of each key, which is more than the bus holds behind a retry
			e.AwaitDone(100, "g")
			inOrder(e, "g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.O06", Name: "other-keys-move", Promise: "events of other keys do not wait for an event being retried, however many events of its key do",
		Needs: []law.Need{law.NeedDelayer, law.NeedRefund}, Faults: []string{"bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 2, MaxInFlight: 40}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00000" && d.Attempt == 1 {
					return eventbus.RetryAfter(buslaw.ErrBroken, 3*e.Lease)
				}
				return nil
			})
			e.PublishEvents(buslaw.KeyedEvents(100, 1)...)
			e.AwaitRuns(1, "g")
			start := time.Now()
			e.PublishEvents(&eventbus.Event{ID: "other", Key: "other"}, &eventbus.Event{ID: "none"})
			e.AwaitDone(2, "g")
			if took := time.Since(start); took > 2*e.Soon() {
				e.Failf("the other key was handled after %v, want at once", took)
			}
			e.AwaitDone(102, "g")
			inOrder(e, "g")
		}),
	},
	{
		ID: "B.O07", Name: "total-order", Promise: "with OrderTotal, events are handled one after another in publishing order, retries included",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, failing(func(d *eventbus.Delivery) bool {
				return strings.HasSuffix(d.ID, "5") && d.Attempt == 1
			}))
			es := buslaw.KeyedEvents(60, 7)
			e.PublishEvents(es...)
			e.AwaitDone(60, "g")
			last := ""
			for _, h := range ordered(e, "g") {
				if h.Err != nil {
					continue
				}
				if h.Delivery.ID < last {
					e.Failf("%s succeeded after %s", h.Delivery.ID, last)
				}
				last = h.Delivery.ID
			}
		}),
	},
	{
		ID: "B.O09", Name: "absent-head", Promise: "when another member has taken over an event that failed, later events of its key continue in the first member",
		Needs: []law.Need{law.NeedDelayer, law.NeedRefund}, Faults: []string{"bus-waits-for-heads"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			s := e.Member("one", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00000" {
					return eventbus.RetryAfter(buslaw.ErrBroken, 2*e.Lease)
				}
				return nil
			})
			e.PublishEvents(buslaw.KeyedEvents(4, 1)...)
			e.AwaitRuns(1, "one")
			time.Sleep(e.Soon())
			// While this member pauses, another member receives the failed event when it is
			// due.
			other := e.Attach("g")
			var head []backend.Delivery
			s.Pause()
			for deadline := time.Now().Add(e.Patience() + 20*e.Lease); len(head) == 0; {
				if time.Now().After(deadline) {
					e.Failf("no other member got the event that had failed")
				}
				head = e.ReceiveWithin(other, 1, e.Lease)
			}
			s.Resume()
			if head[0].ID != "00000" {
				e.Failf("the other member got %s, want the head", head[0].ID)
			}
			e.Ack(other, head...)
			e.AwaitDone(3, "one")
			for i, h := range e.Recorder.All("one")[1:] {
				if want := buslaw.Events(4)[i+1].ID; h.Delivery.ID != want {
					e.Failf("run %d was of %s, want %s", i+2, h.Delivery.ID, want)
				}
			}
		}),
	},
	{
		ID: "B.O11", Name: "retry-finds-room", Promise: "events waiting behind a retry make room for it to be redelivered",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-waits-for-heads"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			o := eventbus.SubscribeOptions{MaxInFlight: 4, Concurrency: 2, Lease: 10 * e.Lease} // a long lease, which does not expire on a busy machine
			e.Member("g", o, failing(func(d *eventbus.Delivery) bool {
				return d.ID < "00004" && d.Attempt < 3
			}))
			e.PublishEvents(buslaw.KeyedEvents(60, 4)...)
			e.AwaitDone(60, "g")
			e.CheckHistory("g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.O10", Name: "unordered", Promise: "with Unordered, no event waits for another of its key",
		Engine: true, Faults: []string{"bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var now, most atomic.Int64
			e.Member("g", eventbus.SubscribeOptions{Order: eventbus.Unordered, Concurrency: 4}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.Lease / 8)
				now.Add(-1)
				return nil
			})
			e.PublishEvents(buslaw.KeyedEvents(16, 1)...)
			e.AwaitDone(16, "g")
			if most.Load() < 2 {
				e.Failf("got at most %d at a time, want several of one key", most.Load())
			}
		}),
	},
}

// behindLaws are about many events that queue behind the first event of their key while it
// fails.
var behindLaws = []law.Law{
	{
		ID: "B.O12", Name: "many-behind", Promise: "when an event with 500 of its key behind it fails twice, all are handled in order within seconds of its success, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) { queueBehind(e, 500, eventbus.SubscribeOptions{Concurrency: 8}, nil) }),
	},
	{
		ID: "B.O13", Name: "many-behind-few-slots", Promise: "when an event with 500 of its key behind it fails twice in a member that holds at most 32, all are handled in order, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) {
			queueBehind(e, 500, eventbus.SubscribeOptions{Concurrency: 8, MaxInFlight: 32}, nil)
		}),
	},
	{
		ID: "B.O14", Name: "thousands-behind", Promise: "when an event with 5,000 of its key behind it fails twice, all are handled in order within seconds of its success, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) { queueBehind(e, 5000, eventbus.SubscribeOptions{Concurrency: 8}, nil) }),
	},
	{
		ID: "B.O15", Name: "many-behind-paused", Promise: "pausing the member after each attempt of an event does not disturb the 2,000 events of its key behind it",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order"},
		Test: buslaw.On(func(e *buslaw.Env) {
			queueBehind(e, 2000, eventbus.SubscribeOptions{Concurrency: 8}, func(s *eventbus.Subscription) {
				s.Pause()
				time.Sleep(e.Lease / 20)
				s.Resume()
			})
		}),
	},
	{
		ID: "B.O16", Name: "many-behind-cut", Promise: "breaking connections after each attempt of an event does not disturb the 2,000 events of its key behind it",
		Needs: []law.Need{law.NeedExtender, law.NeedCut}, Faults: []string{"bus-ignores-order"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			queueBehind(e, 2000, eventbus.SubscribeOptions{Concurrency: 8, MaxInFlight: 64}, func(*eventbus.Subscription) {
				for range 5 {
					e.Cut(e.Backend)
					time.Sleep(e.Lease / 40)
				}
			})
		}),
	},
}

// settling is how long the events behind an event may take after it has succeeded, beside
// the time of a slow call.
const settling = 5 * time.Second

// queueBehind publishes an event that fails twice, and n events of its key behind it. The
// last of them fails once. While the first event waits for its retry, it publishes events of
// other keys, which must be handled in the meantime. It calls between after each run of the
// first event, if between is not nil.
func queueBehind(e *buslaw.Env, n int, o eventbus.SubscribeOptions, between func(*eventbus.Subscription)) {
	e.Open(eventbus.Options{Dedup: e.Limits.OnceWindow > 0}, nil) // a Publish on a broken connection is repeated
	o.Lease = 5 * e.Lease                                         // so that none of thousands of leases expires on a busy machine: that is another test's subject
	es, others := buslaw.KeyedEvents(n+1, 1), otherKeys(50)
	failed := make(chan bool, 2)
	s := e.Member("g", o, failsAtEnds(es[0].ID, es[n].ID, 2*e.Lease, failed))
	e.PublishEvents(es...)
	lost := time.Duration(0) // deliveries that a broken connection has lost come when their leases have expired
	for i := range 2 {
		buslaw.Wait(e, failed, "the first event fails")
		if between != nil {
			between(s)
		}
		if e.Troubled {
			lost = 2 * o.Lease
		}
		if i == 0 {
			published := time.Now()
			e.PublishEvents(others...)
			e.AwaitDone(len(others), "g")
			e.By(published, e.Soon()+lost, "the events of other keys were handled")
		}
	}
	e.Await("the first event succeeds", func(r *buslaw.Recorder) bool { return r.Handled["g "+es[0].ID] })
	succeeded := time.Now()
	if between != nil { // while the events behind are handled
		between(s)
	}
	e.AwaitDone(n+1+len(others), "g")
	e.By(succeeded, settling+lost, "the events behind were handled")
	if e.Troubled { // an event whose acknowledgement got no answer may run again
		inOrderOf(e, withoutRepeats(e.Recorder.All("g")))
		return
	}
	inOrder(e, "g")
	if runs := len(e.Recorder.All("g")); runs != n+1+len(others)+3 {
		e.Failf("got %d runs of %d events, want three more than events: three runs have failed\nrecorded: %s", runs, n+1+len(others), e.Recorder.Summary())
	}
}

// failsAtEnds returns a handler that fails the event first twice, the event last once, and no
// other event. After the first failure of all, the event is redelivered after the delay. The
// channel failed gets a value for each failure of first.
func failsAtEnds(first, last string, after time.Duration, failed chan<- bool) eventbus.Handler {
	var ofFirst, ofLast atomic.Int64
	return func(_ context.Context, d *eventbus.Delivery) error {
		switch {
		case d.ID == last && ofLast.Add(1) == 1:
			return buslaw.ErrBroken
		case d.ID == first && ofFirst.Add(1) <= 2:
			failed <- true
			if ofFirst.Load() == 1 {
				return eventbus.RetryAfter(buslaw.ErrBroken, after)
			}
			return buslaw.ErrBroken
		}
		return nil
	}
}

// otherKeys returns n events of ten keys that [buslaw.KeyedEvents] does not use.
func otherKeys(n int) []*eventbus.Event {
	es := make([]*eventbus.Event, n)
	for i := range es {
		es[i] = &eventbus.Event{ID: fmt.Sprintf("other %03d", i), Key: fmt.Sprintf("other %d", i%10)}
	}
	return es
}

// withoutRepeats returns runs without each run that follows a successful run of its event.
func withoutRepeats(runs []buslaw.HandlerRun) []buslaw.HandlerRun {
	handled := map[string]bool{}
	return slices.DeleteFunc(runs, func(h buslaw.HandlerRun) bool {
		again := handled[h.Delivery.ID]
		handled[h.Delivery.ID] = again || h.Err == nil
		return again
	})
}
