package bus

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// behindLaws are about many events that queue behind the first event of their key while it
// fails.
var behindLaws = []law.Law{
	{
		ID: "B.O12", Name: "many-behind", Promise: "an event fails twice, 500 of its key are behind it: all are handled in order, seconds after it succeeds, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) { queueBehind(e, 500, eventbus.SubscribeOptions{Concurrency: 8}, nil) }),
	},
	{
		ID: "B.O13", Name: "many-behind-few-places", Promise: "an event fails twice, 500 of its key are behind it, and the member holds 32: all are handled in order, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) {
			queueBehind(e, 500, eventbus.SubscribeOptions{Concurrency: 8, MaxInFlight: 32}, nil)
		}),
	},
	{
		ID: "B.O14", Name: "thousands-behind", Promise: "an event fails twice, 5,000 of its key are behind it: all are handled in order, seconds after it succeeds, and other keys do not wait",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-ignores-order", "bus-orders-all"},
		Test: buslaw.On(func(e *buslaw.Env) { queueBehind(e, 5000, eventbus.SubscribeOptions{Concurrency: 8}, nil) }),
	},
	{
		ID: "B.O15", Name: "many-behind-paused", Promise: "pauses of the member after each attempt of an event change nothing for 2,000 events of its key behind it",
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
		ID: "B.O16", Name: "many-behind-cut", Promise: "connections that break after each attempt of an event change nothing for 2,000 events of its key behind it",
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
// other keys, which must be handled meanwhile. It calls between after each run of the
// first event, if between is not nil.
func queueBehind(e *buslaw.Env, n int, o eventbus.SubscribeOptions, between func(*eventbus.Subscription)) {
	e.Open(eventbus.Options{Dedup: e.Limits.OnceWindow > 0}, nil) // a Publish on a broken connection is repeated
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
			lost = 2 * e.Lease
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
func withoutRepeats(runs []buslaw.Handling) []buslaw.Handling {
	handled := map[string]bool{}
	return slices.DeleteFunc(runs, func(h buslaw.Handling) bool {
		again := handled[h.Delivery.ID]
		handled[h.Delivery.ID] = again || h.Err == nil
		return again
	})
}
