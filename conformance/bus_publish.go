package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// busPublishLaws are about what Publish of the bus promises.
var busPublishLaws = []law{
	{
		id: "B.P01", name: "publish-deliver", promise: "every event published reaches every group",
		saboteurs: []string{"bus-loses-one-in-ten"},
		bus: func(e *busEnv) {
			e.start()
			for _, g := range []string{"g1", "g2", "g3"} {
				e.member(g, eventbus.SubscribeOptions{Group: g, Concurrency: 4}, succeed)
			}
			e.publishEvents(keyedEvents(300, 7)...)
			e.awaitDone(900, "g1", "g2", "g3")
			e.settled("g1", "g2", "g3")
		},
	},
	{
		id: "B.P05", name: "dedup", promise: "with Options.Dedup an event published again is stored once, at its first position",
		needs: []need{needOnce}, saboteurs: []string{"bus-without-dedup"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{Dedup: true}, nil)
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			first := e.publishEvents(events(5)...)
			again := e.publishEvents(events(6)...)
			for i := range first {
				if again[i].Position != first[i].Position && again[i].Position != "" {
					e.failf("event %s: got position %q the second time, want %q", again[i].ID, again[i].Position, first[i].Position)
				}
			}
			e.awaitDone(6, "g")
			e.quiet(e.lease + e.soon())
		},
	},
	{
		id: "B.P11", name: "too-large", promise: "an event that is too large is refused with an error that names the field, before anything is stored",
		saboteurs: []string{"bus-cuts-payloads"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			big := make([]byte, eventbus.MaxPayload+1)
			err := e.bus.Publish(e.Context(), topic, &eventbus.Event{ID: "fits"}, &eventbus.Event{ID: "big", Payload: big})
			e.is("Publish of a large payload", err, eventbus.ErrTooLarge)
			if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != "events[1].Payload" {
				e.failf("got error %v, want a FieldError of events[1].Payload", err)
			}
			e.publishEvents(&eventbus.Event{ID: "after", Payload: big[1:]})
			e.awaitDone(1, "g")
			e.quiet(e.soon())
		},
	},
	{
		id: "B.P12", name: "producer-order", promise: "events of one key are stored in the order of publishing, though the backend is unavailable now and then",
		saboteurs: []string{"bus-reverses-keys"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &flaky{Backend: b, every: 20} })
			e.member("g", eventbus.SubscribeOptions{Concurrency: 4}, succeed)
			const keys, each = 20, 50
			var wg sync.WaitGroup
			for k := range keys {
				wg.Go(func() {
					for i := 0; i < each; i += 2 {
						a := &eventbus.Event{ID: fmt.Sprintf("%d.%02d", k, i), Key: fmt.Sprint(k)}
						b := &eventbus.Event{ID: fmt.Sprintf("%d.%02d", k, i+1), Key: fmt.Sprint(k)}
						if err := e.publish(e.Context(), a, b); err != nil {
							e.errorf("Publish: got error %v, want none", err)
						}
					}
				})
			}
			wg.Wait()
			e.awaitDone(keys*each, "g")
			last := map[string]string{}
			for _, h := range e.log.all("g") {
				if d := h.delivery; d.ID < last[d.Key] {
					e.failf("%s was handled after %s", d.ID, last[d.Key])
				}
				last[h.delivery.Key] = h.delivery.ID
			}
		},
	},
	{
		id: "B.P13", name: "batch-partial", promise: "a Publish that stores only some events says which, in the order of its arguments",
		saboteurs: []string{"bus-blurs-errors"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
				return &refusing{Backend: b, refuse: func(m *backend.Message) error {
					if m.ID == "bad" {
						return backend.ErrFull
					}
					return nil
				}}
			})
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			es := []*eventbus.Event{{ID: "a"}, {ID: "bad"}, {ID: "c"}}
			err := e.publish(e.Context(), es...)
			p, ok := errors.AsType[*eventbus.PublishError](err)
			if !ok || len(p.Errors) != 3 || p.Errors[0] != nil || p.Errors[2] != nil {
				e.failf("got error %v, want a PublishError of the second of three", err)
			}
			e.is("the second", p.Errors[1], eventbus.ErrFull)
			if es[0].Position == "" || es[1].Position != "" || es[2].Position == "" {
				e.failf("got positions %q %q %q, want one for the first and the third", es[0].Position, es[1].Position, es[2].Position)
			}
			e.awaitDone(2, "g")
			e.quiet(e.soon())
		},
	},
	{
		id: "B.P14", name: "publish-cancel", promise: "a Publish whose context ends while it is stored returns within 100 ms: outcome unknown; one that was not sent is certainly not stored",
		saboteurs: []string{"bus-ignores-contexts"},
		bus: func(e *busEnv) {
			stalled := &stalling{release: make(chan struct{})}
			e.open(eventbus.Options{}, func(b backend.Backend) backend.Backend { stalled.Backend = b; return stalled })
			wait := e.lease/2 + hitch
			ctx, cancel := context.WithTimeout(e.Context(), wait)
			defer cancel()
			time.AfterFunc(wait+3*e.lease, stalled.end)
			start := time.Now()
			errs := make([]error, 10)
			calls := 0
			var wg sync.WaitGroup
			for queued := false; !queued; {
				i := calls
				if calls++; calls > len(errs) {
					e.failf("%d calls are stored at once, want the last to wait", i)
				}
				wg.Go(func() { errs[i] = e.publish(ctx, &eventbus.Event{ID: fmt.Sprint(i)}) })
				queued = !stalled.waitFor(fmt.Sprint(i), hitch)
			}
			wg.Wait()
			if took := time.Since(start); took > wait+100*time.Millisecond+hitch {
				e.failf("returned after %v, want by %v", took, wait+100*time.Millisecond)
			}
			sent, queued := errs[:calls-1], errs[calls-1]
			if len(sent) == 0 {
				e.failf("nothing was sent")
			}
			for _, err := range sent {
				e.is("what was sent", err, eventbus.ErrUnknownOutcome)
				e.is("what was sent", err, context.DeadlineExceeded)
			}
			e.is("what was queued", queued, eventbus.ErrUnavailable)
			e.is("what was queued", queued, context.DeadlineExceeded)
			if errors.Is(queued, eventbus.ErrUnknownOutcome) {
				e.failf("what was queued: got %v, want it certainly not stored", queued)
			}
		},
	},
	{
		id: "B.P16", name: "names", promise: "names that not every backend can bear are refused with an error that names the field",
		saboteurs: []string{"bus-mends-names"},
		bus: func(e *busEnv) {
			e.start()
			for _, name := range []string{"", "a b", "a*", "a.>", "a..b", ".a", "a.", "a{b}", "a}b", "a\r\nb", "ä", "a/b", "a:b", strings.Repeat("x", 201)} {
				e.field("topic", e.bus.Publish(e.Context(), name, &eventbus.Event{}))
				_, err := e.bus.Subscribe(e.Context(), name, eventbus.SubscribeOptions{Group: "g", DeadLetter: "dead"}, succeed)
				e.field("topic", err)
				_, err = e.bus.Subscribe(e.Context(), topic, eventbus.SubscribeOptions{Group: name}, succeed)
				e.field("SubscribeOptions.Group", err)
				if name != "" {
					_, err = e.bus.Subscribe(e.Context(), topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: name}, succeed)
					e.field("SubscribeOptions.DeadLetter", err)
				}
			}
			for _, name := range []string{"a", "a.b-c_d.E9", strings.Repeat("x", 196)} {
				e.must(e.bus.Publish(e.Context(), name, &eventbus.Event{}))
			}
		},
	},
	{
		id: "B.P17", name: "header-roundtrip", promise: "attributes and headers arrive as they were published; reserved and malformed ones are refused",
		saboteurs: []string{"bus-drops-attributes"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			want := eventbus.Event{
				ID: "id with spaces, 'quotes' and *.>", Type: "order.placed", Source: "//shop/ünïcode", Subject: " subject ",
				ContentType: "application/json; charset=utf-8", Key: "key\"é", Time: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC),
				Headers: eventbus.Headers{{Name: "traceparent", Value: "00-ab-cd-01"}, {Name: "X-Empty", Value: ""}, {Name: "x~!#", Value: " ünï = %20: "}},
			}
			sent := want
			e.publishEvents(&sent)
			e.awaitDone(1, "g")
			got := e.log.all("g")[0].delivery
			e.sameEvent(got.Event, want)
			for _, bad := range []eventbus.Headers{
				{{Name: "ce-type", Value: "x"}},
				{{Name: "Nats-Msg-Id", Value: "x"}},
				{{Name: "eventbus-dead-reason", Value: "x"}},
				{{Name: "a b", Value: "x"}},
				{{Name: "", Value: "x"}},
				{{Name: "a", Value: "x\r\ny"}},
				{{Name: "a", Value: "\xff"}},
				{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}},
			} {
				err := e.bus.Publish(e.Context(), topic, &eventbus.Event{Headers: bad})
				if _, ok := errors.AsType[*eventbus.FieldError](err); !ok {
					e.failf("headers %q: got error %v, want a FieldError", bad, err)
				}
			}
		},
	},
	{
		id: "B.P18", name: "payload-roundtrip", promise: "payloads arrive byte for byte, up to the largest allowed, and may be changed as soon as Publish has returned",
		saboteurs: []string{"bus-trims-payloads"},
		bus: func(e *busEnv) {
			e.start()
			e.member("g", eventbus.SubscribeOptions{}, succeed)
			for i, p := range []string{"", "\x00", "\x00\xff\xfe text \r\n ", strings.Repeat("\x01\x02\x03é", 1000), strings.Repeat("z", eventbus.MaxPayload)} {
				payload := []byte(p)
				e.publishEvents(&eventbus.Event{Payload: payload})
				clear(payload)
				e.awaitDone(i+1, "g")
				if got := e.log.all("g")[i].payload; got != p {
					e.failf("payload %d: got %d bytes, want the %d bytes published", i, len(got), len(p))
				}
			}
		},
	},
	{
		id: "B.P19", name: "publish-fills", promise: "Publish fills ID, Source, Time and Position, and positions grow",
		saboteurs: []string{"bus-forgets-positions"},
		bus: func(e *busEnv) {
			e.open(eventbus.Options{Service: "shop"}, nil)
			last := ""
			for range 20 {
				ev := &eventbus.Event{}
				e.publishEvents(ev)
				if ev.ID == "" || ev.Source != "shop" || ev.Time.IsZero() || ev.Position <= last {
					e.failf("got ID %q, Source %q, Time %v, Position %q after %q", ev.ID, ev.Source, ev.Time, ev.Position, last)
				}
				last = ev.Position
			}
		},
	},
	{
		id: "B.P20", name: "back-pressure", promise: "with RejectWhenFull a Publish beyond MaxPending is refused and certainly not stored; without, it waits",
		saboteurs: []string{"bus-never-rejects"},
		bus: func(e *busEnv) {
			stalled := &stalling{release: make(chan struct{})}
			e.open(eventbus.Options{MaxPending: 2, RejectWhenFull: true}, func(b backend.Backend) backend.Backend { stalled.Backend = b; return stalled })
			e.Cleanup(stalled.end)
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					if err := e.publish(e.Context(), &eventbus.Event{ID: fmt.Sprint(i)}); err != nil {
						e.errorf("Publish within the bound: got error %v, want none", err)
					}
				})
			}
			for i := range 2 {
				stalled.waitFor(fmt.Sprint(i), e.soon()) // it may wait behind the other
			}
			ctx, cancel := context.WithTimeout(e.Context(), e.lease)
			defer cancel()
			err := e.publish(ctx, &eventbus.Event{ID: "third"})
			stalled.end()
			wg.Wait()
			e.is("Publish beyond the bound", err, eventbus.ErrBackpressure)
			if errors.Is(err, eventbus.ErrUnknownOutcome) {
				e.failf("got %v, want it certainly not stored", err)
			}
		},
	},
}

// field expects a FieldError of one field.
func (e *busEnv) field(want string, err error) {
	e.Helper()
	if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != want {
		e.failf("got error %v, want a FieldError of %s", err, want)
	}
}

// sameEvent compares what matters of an event.
func (e *busEnv) sameEvent(got, want eventbus.Event) {
	e.Helper()
	for _, f := range []struct{ name, got, want string }{
		{"ID", got.ID, want.ID},
		{"Type", got.Type, want.Type},
		{"Source", got.Source, want.Source},
		{"Subject", got.Subject, want.Subject},
		{"ContentType", got.ContentType, want.ContentType},
		{"Key", got.Key, want.Key},
		{"Time", got.Time.UTC().String(), want.Time.UTC().String()},
		{"Payload", string(got.Payload), string(want.Payload)},
		{"Headers", fmt.Sprint(len(got.Headers)), fmt.Sprint(len(want.Headers))},
	} {
		if f.got != f.want {
			e.failf("%s: got %q, want %q", f.name, f.got, f.want)
		}
	}
	for _, h := range want.Headers {
		if v, ok := got.Headers.Lookup(h.Name); !ok || v != h.Value {
			e.failf("header %s: got %q, want %q", h.Name, v, h.Value)
		}
	}
}
