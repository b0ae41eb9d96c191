package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busDeliverLaws are about who gets an event, when, and how often.
var busDeliverLaws = []law{
	{
		id: "B.D01", name: "at-least-once", promise: "what is published is handled to the end, through failures, panics and retries",
		saboteurs: []string{"bus-gives-up-early"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 16}, failing(func(d *eventbus.Delivery) bool {
				return d.Attempt <= len(d.ID)%3 && strings.HasSuffix(d.ID, "7") || d.Attempt == 1 && strings.HasSuffix(d.ID, "3")
			}))
			keys := 49
			if !e.extends { // what waits behind a retry may come again just as it is handled
				keys = 0
			}
			e.publishEvents(keyedEvents(1000, keys)...)
			e.awaitDone(1000, "g")
			e.checkHistory("g")
			e.settled("g")
		},
	},
	{
		id: "B.D02", name: "groups-independent", promise: "what one group does with an event changes nothing for another",
		saboteurs: []string{"bus-shares-groups"},
		bus: func(e *busEnv) {
			e.start()
			e.member("a", eventbus.SubscribeOptions{Group: "a", Retry: eventbus.Retry{MaxAttempts: 2}}, failing(func(*eventbus.Delivery) bool { return true }))
			e.member("b", eventbus.SubscribeOptions{Group: "b"}, succeed)
			e.publishEvents(events(20)...)
			e.awaitDone(20, "b")
			awaitTold[deadLettered](e, 20)
			for _, h := range e.log.all("b") {
				if h.delivery.Attempt > 1 {
					e.failf("group b got %s as attempt %d, want 1", h.delivery.ID, h.delivery.Attempt)
				}
			}
			e.settled("a", "b")
		},
	},
	{
		id: "B.D03", name: "competing-once", promise: "members of a group share its events, each comes to one of them once",
		saboteurs: []string{"bus-runs-twice"},
		bus: func(e *busEnv) {
			e.start()
			for range 8 {
				e.member("g", eventbus.SubscribeOptions{Concurrency: 2}, succeed)
			}
			e.publishEvents(events(800)...)
			e.awaitDone(800, "g")
			e.quiet(e.soon())
			e.once("g")
		},
	},
	{
		id: "B.D04", name: "retry-stays-in-group", promise: "a retry comes to the group that failed, and to no other",
		saboteurs: []string{"bus-republishes-retries"},
		bus: func(e *busEnv) {
			e.start()
			e.member("a", eventbus.SubscribeOptions{Group: "a"}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 4 }))
			e.member("b", eventbus.SubscribeOptions{Group: "b"}, succeed)
			e.publishEvents(events(10)...)
			e.awaitDone(20, "a", "b")
			e.quiet(e.lease + e.soon())
			e.once("b")
			if n := len(e.log.all("a")); n != 40 {
				e.failf("group a: got %d runs, want 40", n)
			}
		},
	},
	{
		id: "B.D05", name: "start-earliest", promise: "a new group gets the events that the topic keeps",
		saboteurs: []string{"bus-starts-late"},
		bus: func(e *busEnv) {
			e.start()
			e.publishEvents(events(30)...)
			e.member("late", eventbus.SubscribeOptions{Group: "late"}, succeed)
			e.publishEvents(&eventbus.Event{ID: "new"})
			e.awaitDone(31, "late")
			e.settled("late")
		},
	},
	{
		id: "B.D06", name: "start-latest", promise: "with StartLatest a new group gets what is published after Subscribe has returned, and nothing from before",
		saboteurs: []string{"bus-starts-early"},
		bus: func(e *busEnv) {
			e.start()
			e.publishEvents(events(30)...)
			e.member("late", eventbus.SubscribeOptions{Group: "late", Start: eventbus.StartLatest}, succeed)
			e.publishEvents(&eventbus.Event{ID: "new"})
			e.awaitDone(1, "late")
			e.quiet(e.soon())
			if got := e.log.all("late")[0].delivery.ID; got != "new" {
				e.failf("got %s, want new", got)
			}
		},
	},
	{
		id: "B.D07", name: "position-kept", promise: "a group goes on where it was when all its members are new",
		saboteurs: []string{"bus-renames-groups"},
		bus: func(e *busEnv) {
			e.start()
			for round := range 4 {
				s := e.member("g", eventbus.SubscribeOptions{}, succeed)
				es := events(10)
				for i := range es {
					es[i].ID = fmt.Sprintf("%d.%d", round, i)
				}
				e.publishEvents(es...)
				e.awaitDone(10*(round+1), "g")
				e.must(s.Drain(e.Context()))
			}
			e.once("g")
		},
	},
	{
		id: "B.D08", name: "attempt-sequence", promise: "attempts are numbered 1, 2, 3 through errors, panics, ended goroutines and timeouts",
		saboteurs: []string{"bus-miscounts"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 4, Timeout: e.lease / 2}, misbehave)
			e.publishEvents(events(12)...)
			e.awaitDone(12, "g")
			e.checkHistory("g")
			for _, h := range e.log.all("g") {
				if h.ended.IsZero() || h.err == nil && h.delivery.Attempt != 5 {
					e.failf("event %s: got success on attempt %d, want 5", h.delivery.ID, h.delivery.Attempt)
				}
			}
		},
	},
	{
		id: "B.D10", name: "no-redelivery-after-ack", promise: "what was handled never comes back",
		saboteurs: []string{"ignores-acks"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 8}, succeed)
			e.publishEvents(events(500)...)
			e.awaitDone(500, "g")
			e.quiet(3 * e.lease)
			e.once("g")
		},
	},
	{
		id: "B.D12", name: "stable-identity", promise: "every delivery of an event has the same ID, time, position, headers and bytes, whatever a handler made of the one before",
		saboteurs: []string{"bus-shares-deliveries"},
		bus: func(e *busEnv) {
			e.start()
			var mu sync.Mutex
			var got []eventbus.Event
			e.member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				keep := d.Event
				keep.Payload = slices.Clone(d.Payload)
				keep.Headers = slices.Clone(d.Headers)
				got = append(got, keep)
				d.Payload = append(d.Payload[:4:4], "changed"...)
				d.Headers.Set("h", "changed")
				d.ID, d.Subject = "changed", "changed"
				if len(got) < 4 {
					return errBroken
				}
				return nil
			})
			ev := &eventbus.Event{Subject: "s", Headers: eventbus.Headers{{Name: "h", Value: "v"}}, Payload: []byte("some bytes")}
			e.publishEvents(ev)
			e.awaitDone(1, "g")
			for _, g := range got {
				e.sameEvent(g, *ev)
				if g.Position != ev.Position {
					e.failf("got position %q, want %q as published", g.Position, ev.Position)
				}
			}
		},
	},
	{
		id: "B.D14", name: "big-among-small", promise: "an event larger than the whole byte budget passes, among small ones",
		saboteurs: []string{"bus-drops-large"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{MaxBytes: 64 << 10, Concurrency: 2}, succeed)
			es := events(50)
			es[20].Payload = make([]byte, 512<<10)
			es[40].Payload = make([]byte, eventbus.MaxPayload)
			e.publishEvents(es...)
			e.awaitDone(50, "g")
		},
	},
	{
		id: "B.D15", name: "slow-group-isolated", promise: "a slow group delays no other",
		saboteurs: []string{"bus-serves-one-at-a-time"},
		bus: func(e *busEnv) {
			e.start()
			slow := make(chan struct{})
			release := sync.OnceFunc(func() { close(slow) })
			e.Cleanup(release)
			e.member("slow", eventbus.SubscribeOptions{Group: "slow"}, func(context.Context, *eventbus.Delivery) error {
				<-slow
				return nil
			})
			e.member("fast", eventbus.SubscribeOptions{Group: "fast"}, succeed)
			e.publishEvents(&eventbus.Event{})
			e.awaitRuns(1, "slow")
			start := time.Now()
			e.publishEvents(events(99)...)
			e.awaitDone(100, "fast")
			e.by(start, e.soon(), "the fast group was done")
			release()
			e.awaitDone(200, "slow", "fast")
		},
	},
	{
		id: "B.D17", name: "wake-latency", promise: "an event published to an idle subscription is handled at once",
		saboteurs: []string{"bus-polls"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			// On a machine that is busy with other things all of it takes longer; but not
			// much longer than to wake a member without a bus.
			other := e.attachAs(backend.Config{Topic: "other", Group: "g"})
			var bare, took []time.Duration
			for i := range 5 {
				woken := e.background(e.bounded(), other, 1)
				time.Sleep(e.lease / 3)
				start := time.Now()
				e.publishEvents(&eventbus.Event{})
				e.awaitDone(i+1, "g")
				took = append(took, e.log.all("g")[i].began.Sub(start))
				start = time.Now()
				e.driverEnv.publish(&backend.Message{Topic: "other", ID: fmt.Sprint(i)})
				r := <-woken
				bare = append(bare, time.Since(start))
				e.must(r.err)
				e.ack(other, r.ds...)
			}
			slices.Sort(bare)
			e.mostly(took, max(100*time.Millisecond, 5*bare[len(bare)/2]), "handled")
		},
	},
}

// failing returns a handler that fails where when says so.
func failing(when func(*eventbus.Delivery) bool) eventbus.Handler {
	return func(_ context.Context, d *eventbus.Delivery) error {
		if when(d) {
			return errBroken
		}
		return nil
	}
}

// once expects that each event came once under name.
func (e *busEnv) once(name string) {
	e.Helper()
	seen := map[string]bool{}
	for _, h := range e.log.all(name) {
		if seen[h.delivery.ID] {
			e.failf("%s came twice to %s, want once", h.delivery.ID, name)
		}
		seen[h.delivery.ID] = true
	}
}

// untilHandled returns the runs under name, but where the broker has trouble
// without those of what was handled before: it came again because nobody could
// say that it was acknowledged.
func (e *busEnv) untilHandled(name string) []handling {
	handled := map[string]bool{}
	return slices.DeleteFunc(e.log.all(name), func(h handling) bool {
		again := handled[h.delivery.ID]
		handled[h.delivery.ID] = again || h.err == nil
		return again && e.grace > 0
	})
}

// inOrder expects that runs under name were in order of position, key by key,
// and one at a time.
func (e *busEnv) inOrder(name string) {
	e.Helper()
	last := map[string]handling{}
	for _, h := range e.untilHandled(name) {
		d := h.delivery
		before, ok := last[d.Key]
		if ok && d.Position < before.delivery.Position {
			e.failf("key %q: %s was handled after %s, which was published later", d.Key, d.ID, before.delivery.ID)
		}
		if ok && (before.ended.IsZero() || before.ended.After(h.began)) {
			e.failf("key %q: %s began before %s had ended", d.Key, d.ID, before.delivery.ID)
		}
		if ok && d.Position > before.delivery.Position && before.err != nil && d.ID != before.delivery.ID {
			e.failf("key %q: %s was handled though %s had failed", d.Key, d.ID, before.delivery.ID)
		}
		last[d.Key] = h
	}
}
