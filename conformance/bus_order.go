package conformance

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busOrderLaws are about which events wait for each other.
var busOrderLaws = []law{
	{
		id: "B.O01", name: "key-order", promise: "events of one key are handled one after another in the order of publishing, whatever the concurrency",
		saboteurs: []string{"bus-ignores-order"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 16}, func(_ context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
				return nil
			})
			e.publishEvents(keyedEvents(1000, 10)...)
			e.awaitDone(1000, "g")
			e.inOrder("g")
		},
	},
	{
		id: "B.O02", name: "key-order-retry", promise: "while an event waits for its retry, later ones of its key wait too",
		needs: []need{needExtender}, saboteurs: []string{"bus-ignores-order"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 16}, failing(func(d *eventbus.Delivery) bool {
				return strings.HasSuffix(d.ID, "3") && d.Attempt < 3 || strings.HasSuffix(d.ID, "8") && d.Attempt < 2
			}))
			e.publishEvents(keyedEvents(100, 4)...) // 25 of each key: more than are held behind one
			e.awaitDone(100, "g")
			e.inOrder("g")
			e.settled("g")
		},
	},
	{
		id: "B.O06", name: "other-keys-move", promise: "events of other keys do not wait for one that is retried, however many of its key do",
		needs: []need{needDelayer, needRefund}, saboteurs: []string{"bus-orders-all"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 2, MaxInFlight: 40}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00000" && d.Attempt == 1 {
					return eventbus.RetryAfter(errBroken, 3*e.lease)
				}
				return nil
			})
			e.publishEvents(keyedEvents(100, 1)...)
			e.awaitRuns(1, "g")
			start := time.Now()
			e.publishEvents(&eventbus.Event{ID: "other", Key: "other"}, &eventbus.Event{ID: "none"})
			e.awaitDone(2, "g")
			if took := time.Since(start); took > 2*e.soon() {
				e.failf("the other key was handled after %v, want at once", took)
			}
			e.awaitDone(102, "g")
			e.inOrder("g")
		},
	},
	{
		id: "B.O07", name: "total-order", promise: "with OrderTotal events are handled one after another in the order of publishing, retries included",
		needs: []need{needExtender}, saboteurs: []string{"bus-ignores-order"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, failing(func(d *eventbus.Delivery) bool {
				return strings.HasSuffix(d.ID, "5") && d.Attempt == 1
			}))
			es := keyedEvents(60, 7)
			e.publishEvents(es...)
			e.awaitDone(60, "g")
			last := ""
			for _, h := range e.untilHandled("g") {
				if h.err != nil {
					continue
				}
				if h.delivery.ID < last {
					e.failf("%s succeeded after %s", h.delivery.ID, last)
				}
				last = h.delivery.ID
			}
		},
	},
	{
		id: "B.O09", name: "absent-head", promise: "events of a key go on in one member after another member took the one that had failed",
		needs: []need{needDelayer, needRefund}, saboteurs: []string{"bus-waits-for-ever"},
		bus: func(e *busEnv) {
			e.start()
			s := e.member("one", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "00000" {
					return eventbus.RetryAfter(errBroken, 2*e.lease)
				}
				return nil
			})
			e.publishEvents(keyedEvents(4, 1)...)
			e.awaitRuns(1, "one")
			time.Sleep(e.soon())
			// Another member is there first when the head is due.
			other := e.attach("g")
			var head []backend.Delivery
			s.Pause()
			for deadline := time.Now().Add(e.patience() + 20*e.lease); len(head) == 0; {
				if time.Now().After(deadline) {
					e.failf("no other member got the event that had failed")
				}
				head = e.receiveWithin(other, 1, e.lease)
			}
			s.Resume()
			if head[0].ID != "00000" {
				e.failf("the other member got %s, want the head", head[0].ID)
			}
			e.ack(other, head...)
			e.awaitDone(3, "one")
			for i, h := range e.log.all("one")[1:] {
				if want := events(4)[i+1].ID; h.delivery.ID != want {
					e.failf("run %d was of %s, want %s", i+2, h.delivery.ID, want)
				}
			}
		},
	},
	{
		id: "B.O11", name: "full-house", promise: "what waits behind a retry makes room for it to come back",
		needs: []need{needExtender}, saboteurs: []string{"bus-waits-for-ever"},
		bus: func(e *busEnv) {
			e.start()
			o := eventbus.SubscribeOptions{MaxInFlight: 4, Concurrency: 2, Lease: 10 * e.lease} // none runs out, however busy the machine
			e.member("g", o, failing(func(d *eventbus.Delivery) bool {
				return d.ID < "00004" && d.Attempt < 3
			}))
			e.publishEvents(keyedEvents(60, 4)...)
			e.awaitDone(60, "g")
			e.checkHistory("g")
			e.settled("g")
		},
	},
	{
		id: "B.O10", name: "unordered", promise: "with Unordered nothing waits for an event of its key",
		saboteurs: []string{"bus-orders-all"},
		bus: func(e *busEnv) {
			e.start()
			var now, most atomic.Int64
			e.member("g", eventbus.SubscribeOptions{Order: eventbus.Unordered, Concurrency: 4}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.lease / 8)
				now.Add(-1)
				return nil
			})
			e.publishEvents(keyedEvents(16, 1)...)
			e.awaitDone(16, "g")
			if most.Load() < 2 {
				e.failf("got at most %d at a time, want several of one key", most.Load())
			}
		},
	},
}
