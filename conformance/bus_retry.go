package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busRetryLaws are about when a failed event comes again, and about dead letters.
var busRetryLaws = []law{
	{
		id: "B.T01", name: "retry-not-early", promise: "a failed event comes again after its delay, not before, and soon after",
		needs: []need{needRest}, saboteurs: []string{"ignores-delays"},
		bus: func(e *busEnv) {
			e.start()
			for _, d := range []time.Duration{0, e.lease / 4, 2 * e.lease} {
				name := strings.NewReplacer(".", "-", "µ", "u").Replace(d.String())
				e.memberOf(name, name, eventbus.SubscribeOptions{}, func(_ context.Context, del *eventbus.Delivery) error {
					if del.Attempt == 1 {
						return eventbus.RetryAfter(errBroken, d)
					}
					return nil
				})
				e.must(e.bus.Publish(e.Context(), name, &eventbus.Event{}))
				e.await("the retry of "+name, func(r *recorder) bool { return r.succeeded(name) >= 1 })
				e.gap(name, 0, d)
			}
		},
	},
	{
		id: "B.T02", name: "backoff-shape", promise: "the delays between attempts follow Retry: doubled each time, up to the greatest, within the jitter",
		needs: []need{needRest}, saboteurs: []string{"ignores-delays"},
		bus: func(e *busEnv) {
			e.start()
			r := eventbus.Retry{Initial: e.lease / 4, Max: e.lease, Jitter: 0.2}
			e.member("g", eventbus.SubscribeOptions{Retry: r}, failing(func(d *eventbus.Delivery) bool { return d.Attempt < 6 }))
			e.publishEvents(&eventbus.Event{})
			e.awaitDone(1, "g")
			for i, want := range []time.Duration{e.lease / 4, e.lease / 2, e.lease, e.lease, e.lease} {
				runs := e.log.all("g")
				got := runs[i+1].began.Sub(runs[i].ended)
				if got < want*8/10-tick || got > want*12/10+e.soon() {
					e.failf("attempt %d came after %v, want %v within 20 %%", i+2, got, want)
				}
			}
		},
	},
	{
		id: "B.T03", name: "delay-beyond-lease", promise: "a retry may wait for many leases",
		needs: []need{needRest, needLongDelay}, saboteurs: []string{"caps-delays"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.Attempt == 1 {
					return eventbus.RetryAfter(errBroken, 5*e.lease)
				}
				return nil
			})
			e.publishEvents(&eventbus.Event{})
			e.awaitDone(1, "g")
			e.gap("g", 0, 5*e.lease)
		},
	},
	{
		id: "B.T04", name: "delay-no-blocking", promise: "retries that wait hold no place: others are handled at once",
		needs: []need{needDelayer}, saboteurs: []string{"bus-waits-in-place"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 2, MaxInFlight: 2}, func(_ context.Context, d *eventbus.Delivery) error {
				if strings.HasPrefix(d.ID, "late") && d.Attempt == 1 {
					return eventbus.RetryAfter(errBroken, 3*e.lease)
				}
				return nil
			})
			for i := range 6 {
				e.publishEvents(&eventbus.Event{ID: fmt.Sprint("late", i)})
			}
			e.awaitRuns(6, "g")
			start := time.Now()
			e.publishEvents(&eventbus.Event{ID: "next"})
			e.awaitDone(1, "g")
			e.by(start, 0, "the next event was handled")
			e.awaitDone(7, "g")
		},
	},
	{
		id: "B.T12", name: "snooze", promise: "a snoozed event comes again after the time asked for, at no attempt's cost",
		needs: []need{needDelayer, needRefund}, saboteurs: []string{"ignores-refunds"}, uncounted: true,
		bus: func(e *busEnv) {
			e.start()
			var calls atomic.Int64
			e.member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 2}}, func(context.Context, *eventbus.Delivery) error {
				if calls.Add(1) <= 5 {
					return eventbus.Snooze(e.lease / 4)
				}
				return nil
			})
			e.publishEvents(&eventbus.Event{})
			e.awaitDone(1, "g")
			for i, h := range e.log.all("g") {
				if h.delivery.Attempt != 1 {
					e.failf("run %d was attempt %d, want 1", i+1, h.delivery.Attempt)
				}
			}
			e.gap("g", 2, e.lease/4)
		},
	},
	{
		id: "B.Q01", name: "dlq-after-max", promise: "what fails MaxAttempts times is in the dead-letter topic once, as it was published, with the reason, and settled",
		saboteurs: []string{"bus-loses-dead-letters"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}}, failing(func(*eventbus.Delivery) bool { return true }))
			ev := &eventbus.Event{Type: "t", Key: "k", Headers: eventbus.Headers{{Name: "h", Value: "v"}}, Payload: []byte("\x00raw\xff")}
			e.publishEvents(ev)
			e.awaitDone(1, "dead")
			e.settled("g")
			if n := len(e.log.all("g")); n != 3 {
				e.failf("got %d runs, want 3", n)
			}
			d := e.log.all("dead")[0].delivery
			if string(d.Payload) != "\x00raw\xff" || d.Key != "k" || d.Type != "t" || d.Headers.Get("h") != "v" || d.ID != "g/"+topic+"/"+ev.Position {
				e.failf("got %+v, want the event as published, with the ID of its position", d)
			}
			for name, want := range map[string]string{
				"reason": "exhausted", "error": "broken", "attempts": "3", "topic": topic, "group": "g",
				"id": ev.ID, "position": ev.Position, "error-class": "*errors.errorString",
			} {
				if got := d.Headers.Get("eventbus-dead-" + name); got != want {
					e.failf("header eventbus-dead-%s: got %q, want %q", name, got, want)
				}
			}
			if e.once("dead"); len(awaitTold[deadLettered](e, 1)) != 1 {
				e.failf("want one dead letter told")
			}
		},
	},
	{
		id: "B.Q02", name: "dlq-permanent", promise: "a permanent failure is put aside at once, without a retry; a dropped event is let go and counted",
		saboteurs: []string{"bus-retries-permanent"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			s := e.member("g", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
				if d.ID == "drop" {
					return eventbus.Drop("old")
				}
				return fmt.Errorf("wrapped: %w", eventbus.Permanent(errBroken))
			})
			e.publishEvents(&eventbus.Event{ID: "permanent"}, &eventbus.Event{ID: "drop"})
			e.awaitDone(1, "dead")
			awaitTold[discarded](e, 1)
			e.settled("g")
			if n := len(e.log.all("g")); n != 2 {
				e.failf("got %d runs, want 2", n)
			}
			if d := e.log.all("dead")[0].delivery; d.Headers.Get("eventbus-dead-reason") != "permanent" || d.Headers.Get("eventbus-dead-id") != "permanent" {
				e.failf("got %s, reason %q, want both permanent", d.Headers.Get("eventbus-dead-id"), d.Headers.Get("eventbus-dead-reason"))
			}
			if c := s.Counts(); c.Discarded != 1 || c.DeadLettered != 1 || len(awaitTold[discarded](e, 1)) != 1 {
				e.failf("got counts %+v, want one discarded and one dead-lettered, both told", c)
			}
		},
	},
	{
		id: "B.Q03", name: "dlq-store-down", promise: "what cannot be put aside is not settled: it is put aside when that is possible again",
		saboteurs: []string{"bus-loses-dead-letters"}, uncounted: true,
		bus: func(e *busEnv) {
			var down atomic.Bool
			down.Store(true)
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
				return &refusing{Backend: b, refuse: func(m *backend.Message) error {
					if m.Topic == topic+".dlq" && down.Load() {
						return backend.ErrDenied
					}
					return nil
				}}
			})
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 1}}, failing(func(*eventbus.Delivery) bool { return true }))
			e.publishEvents(&eventbus.Event{ID: "x"})
			e.awaitRuns(2, "g")
			down.Store(false)
			e.awaitDone(1, "dead")
			e.settled("g")
			e.once("dead")
		},
	},
	{
		id: "B.Q05", name: "killers-neighbours", promise: "what was handed out too often without a verdict is put aside unrun; its neighbours, somewhat less often, are handled one at a time",
		needs:     []need{needRefund},
		saboteurs: []string{"bus-buries-suspects", "bus-counts-no-deliveries"},
		bus: func(e *busEnv) {
			e.start()
			e.publishEvents(&eventbus.Event{ID: "killer"})
			e.crash("g", 15, 1)
			e.publishEvents(events(5)...)
			e.crash("g", 5, 6) // with MaxAttempts 3 all are suspects, one is beyond MaxDeliveries, 19
			e.deadLetters()
			var now, most atomic.Int64
			e.member("g", eventbus.SubscribeOptions{Concurrency: 6, Retry: eventbus.Retry{MaxAttempts: 3}}, func(context.Context, *eventbus.Delivery) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(e.lease / 8)
				now.Add(-1)
				return nil
			})
			e.awaitDone(6, "g", "dead")
			if n := len(e.log.all("g")); n != 5 || most.Load() != 1 {
				e.failf("got %d runs, at most %d at a time, want 5, one at a time", n, most.Load())
			}
			if r := e.log.all("dead")[0].delivery.Headers.Get("eventbus-dead-reason"); r != "no-verdict" {
				e.failf("got reason %q, want no-verdict", r)
			}
			e.settled("g")
		},
	},
	{
		id: "B.Q06", name: "undecodable", promise: "a message that cannot be read is put aside with its raw bytes and never reaches a handler; one whose body is gone is let go and told",
		saboteurs: []string{"bus-drops-unreadable"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &garbling{b} })
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			e.publishEvents(&eventbus.Event{ID: "unreadable", Payload: []byte("raw \x00\xff")}, &eventbus.Event{ID: "gone"}, &eventbus.Event{ID: "good"})
			e.awaitDone(2, "g", "dead")
			gone := awaitTold[discarded](e, 1)
			e.settled("g")
			if runs := e.log.all("g"); len(runs) != 1 || runs[0].delivery.ID != "good" {
				e.failf("got %d runs, want one, of the readable message", len(runs))
			}
			d := e.log.all("dead")[0]
			if d.payload != "raw \x00\xff" || d.delivery.Headers.Get("eventbus-dead-reason") != "unreadable" {
				e.failf("got payload %q and reason %q, want the raw bytes and unreadable", d.payload, d.delivery.Headers.Get("eventbus-dead-reason"))
			}
			if len(gone) != 1 || gone[0].Reason != "gone" {
				e.failf("got %v, want one discard of what is gone", gone)
			}
		},
	},
	{
		id: "B.X07", name: "hostile-text", promise: "IDs, keys, attributes and headers are data, whatever they contain, through retries and dead letters",
		saboteurs: []string{"bus-drops-attributes"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: 2}}, failing(func(*eventbus.Delivery) bool { return true }))
			var es []*eventbus.Event
			for _, text := range []string{
				"'; return redis.call('FLUSHALL') --", "]] .. os.exit() .. [[", "%s%n%d", `"quoted" \back\`, "${a} $(a) `a`", "* > $JS.API.>", "{a}:b", " outer ", "g/00001", "null", "-1",
			} {
				es = append(es, &eventbus.Event{
					ID: text, Key: text, Type: text, Source: text, Subject: text, ContentType: text,
					Headers: eventbus.Headers{{Name: "'%s'`$x|~^*!#&+.-_", Value: text}}, Payload: []byte(text),
				})
			}
			e.publishEvents(es...)
			e.awaitDone(len(es), "dead")
			for _, h := range append(e.log.all("g"), e.log.all("dead")...) {
				i := slices.IndexFunc(es, func(ev *eventbus.Event) bool { return string(ev.Payload) == h.payload })
				if i < 0 {
					e.failf("%s got payload %q, which was not published", h.name, h.payload)
				}
				got, want := h.delivery.Event, *es[i]
				if h.name == "dead" { // its own ID and time; more headers
					got.ID, got.Time, got.Headers = want.ID, want.Time, backend.Headers{{Name: want.Headers[0].Name, Value: got.Headers.Get(want.Headers[0].Name)}}
				}
				e.sameEvent(got, want)
			}
			e.once("dead")
			e.settled("g")
		},
	},
	{
		id: "B.Q09", name: "dlq-unblocks-key", promise: "the next event of a key is handled once the one before is put aside",
		needs:     []need{needRest},
		saboteurs: []string{"bus-blocks-after-death"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			e.member("g", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}, Concurrency: 4}, failing(func(d *eventbus.Delivery) bool { return d.ID == "00000" }))
			e.publishEvents(keyedEvents(5, 1)...)
			e.awaitDone(5, "g", "dead")
			runs := e.log.all("g")
			if i := slices.IndexFunc(runs, func(h handling) bool { return h.delivery.ID == "00001" }); i < 3 {
				e.failf("the successor was run %d, want after the three of the first", i+1)
			}
		},
	},
	{
		id: "B.Q10", name: "fail-all", promise: "with FailAll the later events of a key follow one that failed for good to the dead-letter topic, in order and unrun, until the key is released",
		needs:     []need{needRest},
		saboteurs: []string{"bus-skips-failures"},
		bus: func(e *busEnv) {
			e.start()
			e.deadLetters()
			o := eventbus.SubscribeOptions{OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 2}, Concurrency: 4}
			s := e.member("g", o, failing(func(d *eventbus.Delivery) bool { return d.ID == "00004" }))
			e.publishEvents(keyedEvents(10, 2)...) // those of key 0: 0 2 4 6 8
			e.awaitDone(10, "dead", "g")
			var dead []string
			for _, h := range e.log.all("dead") {
				dead = append(dead, h.delivery.Headers.Get("eventbus-dead-id"))
			}
			if want := []string{"00004", "00006", "00008"}; !slices.Equal(dead, want) {
				e.failf("the dead letters are %v, want %v", dead, want)
			}
			for _, h := range e.log.all("g") {
				if h.delivery.ID == "00006" || h.delivery.ID == "00008" {
					e.failf("event %s was handled, and an earlier one of its key had failed", h.delivery.ID)
				}
			}
			if got := s.FailedKeys(); !slices.Equal(got, []string{"key 0"}) {
				e.failf("failed keys are %q, want %q", got, "key 0")
			}
			if !s.ReleaseKey("key 0") || s.ReleaseKey("key 0") {
				e.failf("want the key to be released once")
			}
			e.publishEvents(&eventbus.Event{ID: "after", Key: "key 0"})
			e.awaitDone(11, "dead", "g")
		},
	},
}
