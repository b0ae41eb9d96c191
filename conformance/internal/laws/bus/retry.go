package bus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// retryLaws are about the delay before a retry, and about dead letters.
var retryLaws = []law.Law{
	{
		ID: "B.T01", Name: "retry-not-early", Promise: "a failed event is redelivered after its delay, not before, and soon after",
		Needs: []law.Need{law.NeedRest}, Faults: []string{"delay-ignored"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for _, d := range []time.Duration{0, e.Lease / 4, 2 * e.Lease} {
				name := strings.NewReplacer(".", "-", "µ", "u").Replace(d.String())
				e.MemberOf(name, name, eventbus.SubscribeOptions{}, func(_ context.Context, del *eventbus.Delivery) error {
					if del.Attempt == 1 {
						return eventbus.RetryAfter(buslaw.ErrBroken, d)
					}
					return nil
				})
				e.Must(e.Bus.Publish(e.Context(), name, &eventbus.Event{}))
				e.Await("the retry of "+name, func(r *buslaw.Recorder) bool { return r.Succeeded(name) >= 1 })
				e.Gap(name, 0, d)
			}
		}),
	},
	{
		ID: "B.T02", Name: "backoff-shape", Promise: "the delays between attempts follow Retry: they double up to the maximum, within the jitter",
		Needs: []law.Need{law.NeedRest}, Faults: []string{"delay-ignored"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			r := eventbus.Retry{Initial: e.Lease / 4, Max: e.Lease, Jitter: 0.2}
			e.Member("g", eventbus.SubscribeOptions{Retry: r}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 6 }))
			e.PublishEvents(&eventbus.Event{})
			e.AwaitDone(1, "g")
			for i, want := range []time.Duration{e.Lease / 4, e.Lease / 2, e.Lease, e.Lease, e.Lease} {
				runs := e.Recorder.All("g")
				got := runs[i+1].Began.Sub(runs[i].Ended)
				if got < want*8/10-law.Tick || got > want*12/10+e.Soon() {
					e.Failf("attempt %d came after %v, want %v within 20 %%", i+2, got, want)
				}
			}
		}),
	},
	{
		ID: "B.T03", Name: "delay-beyond-lease", Promise: "a retry may wait for many leases",
		Needs: []law.Need{law.NeedRest, law.NeedLongDelay}, Faults: []string{"delay-capped"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Attempt == 1 {
					return eventbus.RetryAfter(buslaw.ErrBroken, 5*e.Lease)
				}
				return nil
			})
			e.PublishEvents(&eventbus.Event{})
			e.AwaitDone(1, "g")
			e.Gap("g", 0, 5*e.Lease)
		}),
	},
	{
		ID: "B.T04", Name: "delay-no-blocking", Promise: "waiting retries take up no capacity: other events are handled at once",
		Needs: []law.Need{law.NeedDelayer}, Faults: []string{"bus-waits-in-place"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 2, MaxInFlight: 2}, func(_ context.Context, d *eventbus.Delivery) error {
				if strings.HasPrefix(d.ID, "late") && d.Attempt == 1 {
					return eventbus.RetryAfter(buslaw.ErrBroken, 3*e.Lease)
				}
				return nil
			})
			for i := range 6 {
				e.PublishEvents(&eventbus.Event{ID: fmt.Sprint("late", i)})
			}
			e.AwaitRuns(6, "g")
			start := time.Now()
			e.PublishEvents(&eventbus.Event{ID: "next"})
			e.AwaitDone(1, "g")
			e.By(start, 0, "the next event was handled")
			e.AwaitDone(7, "g")
		}),
	},
	{
		ID: "B.T12", Name: "snooze", Promise: "a snoozed event is redelivered after the time asked for, without using an attempt",
		Needs: []law.Need{law.NeedDelayer, law.NeedRefund}, Faults: []string{"delay-inverts-refunds"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			var calls atomic.Int64
			e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2}}, func(context.Context, *eventbus.Delivery) error {
				if calls.Add(1) <= 5 {
					return eventbus.Snooze(e.Lease / 4)
				}
				return nil
			})
			e.PublishEvents(&eventbus.Event{})
			e.AwaitDone(1, "g")
			for i, h := range e.Recorder.All("g") {
				if h.Delivery.Attempt != 1 {
					e.Failf("run %d was attempt %d, want 1", i+1, h.Delivery.Attempt)
				}
			}
			e.Gap("g", 2, e.Lease/4)
		}),
	},
	{
		ID: "B.Q01", Name: "dlq-after-max", Promise: "an event that fails MaxAttempts times is settled and dead-lettered once, as it was published and with the reason",
		Faults: []string{"bus-retries-for-ever"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}}, failing(func(*eventbus.Delivery) bool { return true }))
			ev := &eventbus.Event{Type: "t", Key: "k", Headers: eventbus.Headers{{Name: "h", Value: "v"}}, Payload: []byte("\x00raw\xff")}
			e.PublishEvents(ev)
			e.AwaitDone(1, "dead")
			e.Settled("g")
			if n := len(e.Recorder.All("g")); n != 3 {
				e.Failf("got %d runs, want 3", n)
			}
			d := e.Recorder.All("dead")[0].Delivery
			if string(d.Payload) != "\x00raw\xff" || d.Key != "k" || d.Type != "t" || d.Headers.Get("h") != "v" || !strings.HasPrefix(d.ID, "g/"+law.Topic+"/"+ev.Position+"/") {
				e.Failf("got %+v, want the event as published, with an ID that has its position", d)
			}
			for name, want := range map[string]string{
				"reason": "exhausted", "error": "broken", "attempts": "3", "topic": law.Topic, "group": "g",
				"id": ev.ID, "position": ev.Position, "error-class": "*errors.errorString",
			} {
				if got := d.Headers.Get("eventbus-dead-" + name); got != want {
					e.Failf("header eventbus-dead-%s: got %q, want %q", name, got, want)
				}
			}
			if once(e, "dead"); len(buslaw.AwaitObserved[deadLettered](e, 1)) != 1 {
				e.Failf("want one dead letter reported to the observer")
			}
		}),
	},
	{
		ID: "B.Q02", Name: "dlq-permanent", Promise: "a permanent failure is dead-lettered at once, without a retry; a dropped event is discarded and counted",
		Faults: []string{"bus-retries-late"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			s := e.Member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "drop" {
					return eventbus.Drop("old")
				}
				return fmt.Errorf("wrapped: %w", eventbus.Permanent(buslaw.ErrBroken))
			})
			e.PublishEvents(&eventbus.Event{ID: "permanent"}, &eventbus.Event{ID: "drop"})
			e.AwaitDone(1, "dead")
			buslaw.AwaitObserved[discarded](e, 1)
			e.Settled("g")
			if n := len(e.Recorder.All("g")); n != 2 {
				e.Failf("got %d runs, want 2", n)
			}
			if d := e.Recorder.All("dead")[0].Delivery; d.Headers.Get("eventbus-dead-reason") != "permanent" || d.Headers.Get("eventbus-dead-id") != "permanent" {
				e.Failf("got %s, reason %q, want both permanent", d.Headers.Get("eventbus-dead-id"), d.Headers.Get("eventbus-dead-reason"))
			}
			if c := s.Counts(); c.Discarded != 1 || c.DeadLettered != 1 || len(buslaw.AwaitObserved[discarded](e, 1)) != 1 {
				e.Failf("got counts %+v, want one discarded and one dead-lettered, both reported to the observer", c)
			}
		}),
	},
	{
		ID: "B.Q03", Name: "dlq-store-down", Promise: "an event that cannot be dead-lettered is not settled, and is dead-lettered once that is possible again",
		Faults: []string{"bus-retries-for-ever"}, Uncounted: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			var down atomic.Bool
			down.Store(true)
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
				return &refusing{Backend: b, refuse: func(m *backend.Message) error {
					if m.Topic == law.Topic+".dlq" && down.Load() {
						return backend.ErrDenied
					}
					return nil
				}}
			})
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 1}}, failing(func(*eventbus.Delivery) bool { return true }))
			e.PublishEvents(&eventbus.Event{ID: "x"})
			e.Await("storing the dead letter has failed", func(r *buslaw.Recorder) bool {
				return slices.ContainsFunc(buslaw.Observed[observer.Failed](r), func(f observer.Failed) bool { return f.Scope == observer.DeadLettering })
			})
			down.Store(false)
			e.AwaitDone(1, "dead")
			e.Settled("g")
			once(e, "dead")
		}),
	},
	{
		ID: "B.Q05", Name: "killers-neighbours", Promise: "an event that was delivered too often without a verdict is dead-lettered without a run; its neighbours, delivered somewhat less often, are handled one at a time",
		Needs:  []law.Need{law.NeedRefund},
		Faults: []string{"bus-retries-for-ever"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.PublishEvents(&eventbus.Event{ID: "killer"})
			e.Crash("g", 15, 1)
			e.PublishEvents(buslaw.Events(5)...)
			e.Crash("g", 5, 6) // 5 deliveries exceed MaxAttempts, 3; above 19, as the killer has, events are dead-lettered unrun
			e.DeadLetters()
			var now, most atomic.Int64
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 6, Retry: eventbus.Retry{MaxAttempts: 3}}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.Lease / 8)
				now.Add(-1)
				return nil
			})
			e.AwaitDone(6, "g", "dead")
			if n := len(e.Recorder.All("g")); n != 5 || most.Load() != 1 {
				e.Failf("got %d runs, at most %d at a time, want 5, one at a time", n, most.Load())
			}
			if r := e.Recorder.All("dead")[0].Delivery.Headers.Get("eventbus-dead-reason"); r != "no-verdict" {
				e.Failf("got reason %q, want no-verdict", r)
			}
			e.Settled("g")
		}),
	},
	{
		ID: "B.Q06", Name: "undecodable", Promise: "a message that cannot be read is dead-lettered with its raw bytes and never reaches a handler; one whose body is gone is discarded and reported",
		Faults: []string{"receive-skips-gone"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &garbling{b} })
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{ID: "unreadable", Payload: []byte("raw \x00\xff")}, &eventbus.Event{ID: "gone"}, &eventbus.Event{ID: "good"})
			e.AwaitDone(2, "g", "dead")
			gone := buslaw.AwaitObserved[discarded](e, 1)
			e.Settled("g")
			if runs := e.Recorder.All("g"); len(runs) != 1 || runs[0].Delivery.ID != "good" {
				e.Failf("got %d runs, want one, of the readable message", len(runs))
			}
			d := e.Recorder.All("dead")[0]
			if d.Payload != "raw \x00\xff" || d.Delivery.Headers.Get("eventbus-dead-reason") != "unreadable" {
				e.Failf("got payload %q and reason %q, want the raw bytes and unreadable", d.Payload, d.Delivery.Headers.Get("eventbus-dead-reason"))
			}
			if len(gone) != 1 || gone[0].Reason != "gone" {
				e.Failf("got %v, want one discard of what is gone", gone)
			}
		}),
	},
	{
		ID: "B.X07", Name: "hostile-text", Promise: "IDs, keys, attributes and headers are treated as data, whatever they contain, through retries and dead-lettering",
		Faults: []string{"bus-drops-fields"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: 2}}, failing(func(*eventbus.Delivery) bool { return true }))
			var es []*eventbus.Event
			for _, text := range []string{
				"'; return redis.call('FLUSHALL') --", "]] .. os.exit() .. [[", "%s%n%d", `"quoted" \back\`, "${a} $(a) `a`", "* > $JS.API.>", "{a}:b", " outer ", "g/00001", "null", "-1",
			} {
				es = append(es, &eventbus.Event{
					ID: text, Key: text, Type: text, Source: text, Subject: text, ContentType: text,
					Headers: eventbus.Headers{{Name: "'%s'`$x|~^*!#&+.-_", Value: text}}, Payload: []byte(text),
				})
			}
			e.PublishEvents(es...)
			e.AwaitDone(len(es), "dead")
			for _, h := range append(e.Recorder.All("g"), e.Recorder.All("dead")...) {
				i := slices.IndexFunc(es, func(ev *eventbus.Event) bool { return string(ev.Payload) == h.Payload })
				if i < 0 {
					e.Failf("%s got payload %q, which was not published", h.Name, h.Payload)
				}
				got, want := h.Delivery.Event, *es[i]
				if h.Name == "dead" { // a dead letter has its own ID and time, and more headers
					got.ID, got.Time, got.Headers = want.ID, want.Time, backend.Headers{{Name: want.Headers[0].Name, Value: got.Headers.Get(want.Headers[0].Name)}}
				}
				sameEvent(e, got, want)
			}
			once(e, "dead")
			e.Settled("g")
		}),
	},
	{
		ID: "B.Q09", Name: "dlq-unblocks-key", Promise: "the next event of a key is handled once the previous one is dead-lettered",
		Needs:  []law.Need{law.NeedRest},
		Faults: []string{"bus-waits-for-heads"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			e.Member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID == "00000" }))
			e.PublishEvents(buslaw.KeyedEvents(5, 1)...)
			e.AwaitDone(5, "g", "dead")
			runs := e.Recorder.All("g")
			if i := slices.IndexFunc(runs, func(h buslaw.HandlerRun) bool { return h.Delivery.ID == "00001" }); i < 3 {
				e.Failf("the successor was run %d, want after the three of the first", i+1)
			}
		}),
	},
	{
		ID: "B.Q10", Name: "fail-all", Promise: "with FailAll, when an event fails for good, later events of its key are dead-lettered after it, in order and without a run, until the key is released",
		Needs:  []law.Need{law.NeedRest},
		Faults: []string{"bus-ignores-failure-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.DeadLetters()
			o := eventbus.SubscribeOptions{OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 2}, Concurrency: 4}
			s := e.Member("g", o, failing(func(d *eventbus.Delivery) bool { return d.ID == "00004" }))
			e.PublishEvents(buslaw.KeyedEvents(10, 2)...) // the events with even IDs have the first key
			e.AwaitDone(10, "dead", "g")
			var dead []string
			for _, h := range e.Recorder.All("dead") {
				dead = append(dead, h.Delivery.Headers.Get("eventbus-dead-id"))
			}
			if want := []string{"00004", "00006", "00008"}; !slices.Equal(dead, want) {
				e.Failf("the dead letters are %v, want %v", dead, want)
			}
			for _, h := range e.Recorder.All("g") {
				if h.Delivery.ID == "00006" || h.Delivery.ID == "00008" {
					e.Failf("event %s was handled, and an earlier one of its key had failed", h.Delivery.ID)
				}
			}
			if got := s.FailedKeys(); !slices.Equal(got, []string{"key 0"}) {
				e.Failf("failed keys are %q, want %q", got, "key 0")
			}
			if !s.ReleaseKey("key 0") || s.ReleaseKey("key 0") {
				e.Failf("want the key to be released once")
			}
			e.PublishEvents(&eventbus.Event{ID: "after", Key: "key 0"})
			e.AwaitDone(11, "dead", "g")
		}),
	},
}
