package bus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// deliverLaws are about the delivery of events: to which member, when, and how often.
var deliverLaws = []law.Law{
	{
		ID: "B.D01", Name: "at-least-once", Promise: "published events are handled to completion, despite failures, panics and retries",
		Faults: []string{"bus-forgives-failures"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 16}, failing(func(d *eventbus.Delivery) bool {
				return d.Attempt <= len(d.ID)%3 && strings.HasSuffix(d.ID, "7") || d.Attempt == 1 && strings.HasSuffix(d.ID, "3")
			}))
			keys := 49
			if !e.Extends { // without extended leases, an event that waits for a retry may be redelivered before its retry, so the test uses no keys
				keys = 0
			}
			e.PublishEvents(buslaw.KeyedEvents(1000, keys)...)
			e.AwaitDone(1000, "g")
			e.CheckHistory("g")
			e.Settled("g")
		}),
	},
	{
		ID: "B.D02", Name: "groups-independent", Promise: "what one group does with an event does not affect other groups",
		Faults: []string{"group-shared"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("a", eventbus.SubscribeOptions{Group: "a", Retry: eventbus.Retry{MaxAttempts: 2}}, failing(func(*eventbus.Delivery) bool { return true }))
			e.Member("b", eventbus.SubscribeOptions{Group: "b"}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(20)...)
			e.AwaitDone(20, "b")
			buslaw.AwaitObserved[deadLettered](e, 20)
			for _, h := range e.Recorder.All("b") {
				if h.Delivery.Attempt > 1 {
					e.Failf("group b got %s as attempt %d, want 1", h.Delivery.ID, h.Delivery.Attempt)
				}
			}
			e.Settled("a", "b")
		}),
	},
	{
		ID: "B.D03", Name: "competing-once", Promise: "the members of a group share its events: each event goes to one of them, once",
		Faults: []string{"bus-runs-twice"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for range 8 {
				e.Member("g", eventbus.SubscribeOptions{Concurrency: 2}, buslaw.Succeed)
			}
			e.PublishEvents(buslaw.Events(800)...)
			e.AwaitDone(800, "g")
			e.Quiet(e.Soon())
			once(e, "g")
		}),
	},
	{
		ID: "B.D04", Name: "retry-stays-in-group", Promise: "a retry goes only to the group in which the event failed",
		Faults: []string{"delay-publishes"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("a", eventbus.SubscribeOptions{Group: "a"}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 4 }))
			e.Member("b", eventbus.SubscribeOptions{Group: "b"}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(10)...)
			e.AwaitDone(20, "a", "b")
			e.Quiet(e.Lease + e.Soon())
			once(e, "b")
			if n := len(e.Recorder.All("a")); n != 40 {
				e.Failf("group a: got %d runs, want 40", n)
			}
		}),
	},
	{
		ID: "B.D05", Name: "start-earliest", Promise: "a new group gets the events that the topic has kept",
		Faults: []string{"bus-inverts-starts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.PublishEvents(buslaw.Events(30)...)
			e.Member("late", eventbus.SubscribeOptions{Group: "late"}, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{ID: "new"})
			e.AwaitDone(31, "late")
			e.Settled("late")
		}),
	},
	{
		ID: "B.D06", Name: "start-latest", Promise: "with StartLatest, a new group gets the events published after Subscribe has returned, and no earlier ones",
		Faults: []string{"bus-inverts-starts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.PublishEvents(buslaw.Events(30)...)
			e.Member("late", eventbus.SubscribeOptions{Group: "late", Start: eventbus.StartLatest}, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{ID: "new"})
			e.AwaitDone(1, "late")
			e.Quiet(e.Soon())
			if got := e.Recorder.All("late")[0].Delivery.ID; got != "new" {
				e.Failf("got %s, want new", got)
			}
		}),
	},
	{
		ID: "B.D07", Name: "position-kept", Promise: "a group continues where it left off even if all its members are new",
		Faults: []string{"group-per-member"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for round := range 4 {
				s := e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
				es := buslaw.Events(10)
				for i := range es {
					es[i].ID = fmt.Sprintf("%d.%d", round, i)
				}
				e.PublishEvents(es...)
				e.AwaitDone(10*(round+1), "g")
				e.Must(s.Drain(e.Context()))
			}
			once(e, "g")
		}),
	},
	{
		ID: "B.D08", Name: "attempt-sequence", Promise: "attempts are numbered 1, 2, 3 across errors, panics, ended goroutines and timeouts",
		Faults: []string{"receive-miscounts", "bus-mixes-deliveries"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4, Timeout: e.Lease / 2}, misbehave)
			e.PublishEvents(buslaw.Events(12)...)
			e.AwaitDone(12, "g")
			e.CheckHistory("g")
			for _, h := range e.Recorder.All("g") {
				if h.Ended.IsZero() || h.Err == nil && h.Delivery.Attempt != 5 {
					e.Failf("event %s: got success on attempt %d, want 5", h.Delivery.ID, h.Delivery.Attempt)
				}
			}
		}),
	},
	{
		ID: "B.D10", Name: "no-redelivery-after-ack", Promise: "a handled event is never redelivered",
		Faults: []string{"ack-ignored"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 8}, buslaw.Succeed)
			e.PublishEvents(buslaw.Events(500)...)
			e.AwaitDone(500, "g")
			e.Quiet(3 * e.Lease)
			once(e, "g")
		}),
	},
	{
		ID: "B.D12", Name: "stable-identity", Promise: "every delivery of an event has the same ID, time, position, headers and bytes, even if a handler modified the previous one",
		Faults: []string{"bus-mixes-deliveries"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var mu sync.Mutex
			var got []eventbus.Event
			e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
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
					return buslaw.ErrBroken
				}
				return nil
			})
			ev := &eventbus.Event{Source: "shop", Subject: "s", Headers: eventbus.Headers{{Name: "h", Value: "v"}}, Payload: []byte("some bytes")}
			e.PublishEvents(ev)
			e.AwaitDone(1, "g")
			for _, g := range got {
				sameEvent(e, g, *ev)
				if g.Position != ev.Position {
					e.Failf("got position %q, want %q as published", g.Position, ev.Position)
				}
			}
		}),
	},
	{
		ID: "B.D14", Name: "big-among-small", Promise: "an event larger than the whole byte budget gets through among small ones",
		Faults: []string{"bus-loses-one-in-ten"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{MaxBytes: 64 << 10, Concurrency: 2}, buslaw.Succeed)
			es := buslaw.Events(50)
			es[20].Payload = make([]byte, 512<<10)
			es[40].Payload = make([]byte, eventbus.MaxPayload)
			e.PublishEvents(es...)
			e.AwaitDone(50, "g")
		}),
	},
	{
		ID: "B.D15", Name: "slow-group-isolated", Promise: "a slow group does not delay other groups",
		Faults: []string{"bus-polls"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			slow := make(chan struct{})
			release := sync.OnceFunc(func() { close(slow) })
			e.Cleanup(release)
			e.Member("slow", eventbus.SubscribeOptions{Group: "slow"}, func(context.Context, *eventbus.Delivery) error {
				<-slow
				return nil
			})
			e.Member("fast", eventbus.SubscribeOptions{Group: "fast"}, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{})
			e.AwaitRuns(1, "slow")
			start := time.Now()
			e.PublishEvents(buslaw.Events(99)...)
			e.AwaitDone(100, "fast")
			e.By(start, e.Soon(), "the fast group was done")
			release()
			e.AwaitDone(200, "slow", "fast")
		}),
	},
	{
		ID: "B.D17", Name: "wake-latency", Promise: "an event published to an idle subscription is handled at once",
		Faults: []string{"bus-polls"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			// On a busy machine all calls take longer, so the law compares: a bus should
			// not need much longer than a waiting Receive of the backend.
			other := e.AttachAs(backend.Config{Topic: "other", Group: "g"})
			var bare, took []time.Duration
			for i := range 5 {
				woken := e.Background(e.Bounded(), other, 1)
				time.Sleep(e.Lease / 3)
				start := time.Now()
				e.PublishEvents(&eventbus.Event{})
				e.AwaitDone(i+1, "g")
				took = append(took, e.Recorder.All("g")[i].Began.Sub(start))
				start = time.Now()
				e.Env.Publish(&backend.Message{Topic: "other", ID: fmt.Sprint(i)})
				r := <-woken
				bare = append(bare, time.Since(start))
				e.Must(r.Err)
				e.Ack(other, r.Deliveries...)
			}
			slices.Sort(bare)
			e.Mostly(took, max(100*time.Millisecond, 5*bare[len(bare)/2]), "handled")
		}),
	},
}

// failing returns a handler that fails each delivery for which when returns true.
func failing(when func(*eventbus.Delivery) bool) eventbus.Handler {
	return func(_ context.Context, d *eventbus.Delivery) error {
		if when(d) {
			return buslaw.ErrBroken
		}
		return nil
	}
}

// once expects that no event had two runs under name.
func once(e *buslaw.Env, name string) {
	e.Helper()
	seen := map[string]bool{}
	for _, h := range e.Recorder.All(name) {
		if seen[h.Delivery.ID] {
			e.Failf("%s came twice to %s, want once", h.Delivery.ID, name)
		}
		seen[h.Delivery.ID] = true
	}
}

// ordered returns the runs under name that must be in order. With Grace it leaves out each
// run that follows a successful run of the same event, because the acknowledgement may have
// got no answer. It also leaves out the events that lost a lease, here or on the way here,
// because order holds only while leases hold.
func ordered(e *buslaw.Env, name string) []buslaw.HandlerRun {
	runs := e.Recorder.All(name)
	if e.Grace == 0 {
		return runs
	}
	lost, handled := map[string]bool{}, map[string]bool{}
	for _, l := range buslaw.ObservedOf[leaseLost](e) {
		lost[l.ID] = true
	}
	return slices.DeleteFunc(runs, func(h buslaw.HandlerRun) bool {
		id := h.Delivery.ID
		_, came := handled[id]
		lost[id] = lost[id] || !came && h.Delivery.Redelivered
		again := handled[id]
		handled[id] = again || h.Err == nil
		return again || lost[id]
	})
}

// inOrder expects three facts about the runs under name of each key. The runs are in order
// of position. No two runs overlap. No later event runs before a failed event was handled.
func inOrder(e *buslaw.Env, name string) {
	e.Helper()
	inOrderOf(e, ordered(e, name))
}

// inOrderOf is like inOrder for the given runs.
func inOrderOf(e *buslaw.Env, runs []buslaw.HandlerRun) {
	e.Helper()
	last := map[string]buslaw.HandlerRun{}
	for _, h := range runs {
		d := h.Delivery
		before, ok := last[d.Key]
		if ok && d.Position < before.Delivery.Position {
			e.Failf("key %q: %s was handled after %s, which was published later\nrecorded: %s", d.Key, d.ID, before.Delivery.ID, e.Recorder.Summary())
		}
		if ok && (before.Ended.IsZero() || before.Ended.After(h.Began)) {
			e.Failf("key %q: %s began before %s had ended\nrecorded: %s", d.Key, d.ID, before.Delivery.ID, e.Recorder.Summary())
		}
		if ok && d.Position > before.Delivery.Position && before.Err != nil && d.ID != before.Delivery.ID {
			e.Failf("key %q: %s was handled though %s had failed\nrecorded: %s", d.Key, d.ID, before.Delivery.ID, e.Recorder.Summary())
		}
		last[d.Key] = h
	}
}
