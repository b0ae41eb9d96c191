package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// publishLaws are about Bus.Publish.
var publishLaws = []law.Law{
	{
		ID: "B.P01", Name: "publish-deliver", Promise: "every published event reaches every group",
		Faults: []string{"bus-loses-one-in-ten"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for _, g := range []string{"g1", "g2", "g3"} {
				e.Member(g, eventbus.SubscribeOptions{Group: g, Concurrency: 4}, buslaw.Succeed)
			}
			e.PublishEvents(buslaw.KeyedEvents(300, 7)...)
			e.AwaitDone(900, "g1", "g2", "g3")
			e.Settled("g1", "g2", "g3")
		}),
	},
	{
		ID: "B.P05", Name: "dedup", Promise: "with Options.Dedup, an event that is published again is stored once, at its first position",
		Needs: []law.Need{law.NeedOnce}, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{Dedup: true}, nil)
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			first := e.PublishEvents(buslaw.Events(5)...)
			again := e.PublishEvents(buslaw.Events(6)...)
			for i := range first {
				if again[i].Position != first[i].Position && again[i].Position != "" {
					e.Failf("event %s: got position %q the second time, want %q", again[i].ID, again[i].Position, first[i].Position)
				}
			}
			e.AwaitDone(6, "g")
			e.Quiet(e.Lease + e.Soon())
		}),
	},
	{
		ID: "B.P11", Name: "too-large", Promise: "an event that is too large is refused before anything is stored, with an error that names the field",
		Faults: []string{"bus-corrects-events"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			big := make([]byte, eventbus.MaxPayload+1)
			err := e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{ID: "fits"}, &eventbus.Event{ID: "big", Payload: big})
			e.Is("Publish of a large payload", err, eventbus.ErrTooLarge)
			if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != "events[1].Payload" {
				e.Failf("got error %v, want a FieldError of events[1].Payload", err)
			}
			e.PublishEvents(&eventbus.Event{ID: "after", Payload: big[1:]})
			e.AwaitDone(1, "g")
			e.Quiet(e.Soon())
		}),
	},
	{
		ID: "B.P12", Name: "producer-order", Promise: "the events of a key are stored in publishing order, even if the backend is unavailable at times",
		Faults: []string{"bus-reverses-events"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { return &flaky{Backend: b, every: 20} })
			e.Member("g", eventbus.SubscribeOptions{Concurrency: 4}, buslaw.Succeed)
			const keys, each = 20, 50
			var wg sync.WaitGroup
			for k := range keys {
				wg.Go(func() {
					for i := 0; i < each; i += 2 {
						a := &eventbus.Event{ID: fmt.Sprintf("%d.%02d", k, i), Key: fmt.Sprint(k)}
						b := &eventbus.Event{ID: fmt.Sprintf("%d.%02d", k, i+1), Key: fmt.Sprint(k)}
						if err := e.Publish(e.Context(), a, b); err != nil {
							e.Errorf("Publish: got error %v, want none", err)
						}
					}
				})
			}
			wg.Wait()
			e.AwaitDone(keys*each, "g")
			last := map[string]string{}
			for _, h := range e.Recorder.All("g") {
				if d := h.Delivery; d.ID < last[d.Key] {
					e.Failf("%s was handled after %s", d.ID, last[d.Key])
				}
				last[h.Delivery.Key] = h.Delivery.ID
			}
		}),
	},
	{
		ID: "B.P13", Name: "batch-partial", Promise: "a Publish that stores only some of its events reports which ones, in the order of its arguments",
		Faults: []string{"bus-blurs-results"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
				return &refusing{Backend: b, refuse: func(m *backend.Message) error {
					if m.ID == "bad" {
						return backend.ErrFull
					}
					return nil
				}}
			})
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			es := []*eventbus.Event{{ID: "a"}, {ID: "bad"}, {ID: "c"}}
			err := e.Publish(e.Context(), es...)
			p, ok := errors.AsType[*eventbus.PublishError](err)
			if !ok || len(p.Errors) != 3 || p.Errors[0] != nil || p.Errors[2] != nil {
				e.Failf("got error %v, want a PublishError of the second of three", err)
			}
			e.Is("the second", p.Errors[1], eventbus.ErrFull)
			if es[0].Position == "" || es[1].Position != "" || es[2].Position == "" {
				e.Failf("got positions %q %q %q, want one for the first and the third", es[0].Position, es[1].Position, es[2].Position)
			}
			e.AwaitDone(2, "g")
			e.Quiet(e.Soon())
		}),
	},
	{
		ID: "B.P14", Name: "publish-cancel", Promise: "a Publish whose context ends while its event is being stored returns within 100 ms with an unknown outcome; an event that was not sent is certainly not stored",
		Faults: []string{"bus-ignores-contexts"},
		Test: buslaw.On(func(e *buslaw.Env) {
			var took []time.Duration
			for range 3 {
				took = append(took, publishCancelled(e))
			}
			e.Mostly(took, 100*time.Millisecond+law.Hitch, "Publish returned after its context was done,")
		}),
	},
	{
		ID: "B.P16", Name: "names", Promise: "names that not every backend accepts are refused with an error that names the field",
		Faults: []string{"bus-corrects-events"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			for _, name := range []string{"", "a b", "a*", "a.>", "a..b", ".a", "a.", "a{b}", "a}b", "a\r\nb", "ä", "a/b", "a:b", strings.Repeat("x", 201)} {
				field(e, "topic", e.Bus.Publish(e.Context(), name, &eventbus.Event{}))
				if name != "a.>" { // it is a pattern
					_, err := e.Bus.Subscribe(e.Context(), name, eventbus.SubscribeOptions{Group: "g", DeadLetter: "dead"}, buslaw.Succeed)
					field(e, "topic", err)
				}
				_, err := e.Bus.Subscribe(e.Context(), law.Topic, eventbus.SubscribeOptions{Group: name}, buslaw.Succeed)
				field(e, "SubscribeOptions.Group", err)
				if name != "" {
					_, err = e.Bus.Subscribe(e.Context(), law.Topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: name}, buslaw.Succeed)
					field(e, "SubscribeOptions.DeadLetter", err)
				}
			}
			for _, name := range []string{"a", "a.b-c_d.E9", strings.Repeat("x", 196)} {
				e.Must(e.Bus.Publish(e.Context(), name, &eventbus.Event{}))
			}
		}),
	},
	{
		ID: "B.P17", Name: "header-roundtrip", Promise: "attributes and headers arrive as published; reserved and malformed ones are refused",
		Faults: []string{"bus-drops-fields"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			want := eventbus.Event{
				ID: "id with spaces, 'quotes' and *.>", Type: "order.placed", Source: "//shop/ünïcode", Subject: " subject ",
				ContentType: "application/json; charset=utf-8", Key: "key\"é", Time: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC),
				Headers: eventbus.Headers{{Name: "traceparent", Value: "00-ab-cd-01"}, {Name: "X-Empty", Value: ""}, {Name: "ce-comexample", Value: "a b"}, {Name: "x~!#", Value: " ünï = %20: "}},
			}
			sent := want
			e.PublishEvents(&sent)
			e.AwaitDone(1, "g")
			got := e.Recorder.All("g")[0].Delivery
			sameEvent(e, got.Event, want)
			for _, bad := range []eventbus.Headers{
				{{Name: "ce-type", Value: "x"}},
				{{Name: "Ce-comexample", Value: "x"}},
				{{Name: "Nats-Msg-Id", Value: "x"}},
				{{Name: "eventbus-dead-reason", Value: "x"}},
				{{Name: "a b", Value: "x"}},
				{{Name: "", Value: "x"}},
				{{Name: "a", Value: "x\r\ny"}},
				{{Name: "a", Value: "\xff"}},
				{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}},
			} {
				err := e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{Headers: bad})
				if _, ok := errors.AsType[*eventbus.FieldError](err); !ok {
					e.Failf("headers %q: got error %v, want a FieldError", bad, err)
				}
			}
		}),
	},
	{
		ID: "B.P18", Name: "payload-roundtrip", Promise: "payloads up to the largest allowed arrive byte for byte, and may be modified as soon as Publish has returned",
		Faults: []string{"bus-drops-fields"},
		Test: buslaw.On(func(e *buslaw.Env) {
			e.Start()
			e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
			for i, p := range []string{"", "\x00", "\x00\xff\xfe text \r\n ", strings.Repeat("\x01\x02\x03é", 1000), strings.Repeat("z", eventbus.MaxPayload)} {
				payload := []byte(p)
				e.PublishEvents(&eventbus.Event{Payload: payload})
				clear(payload)
				e.AwaitDone(i+1, "g")
				if got := e.Recorder.All("g")[i].Payload; got != p {
					e.Failf("payload %d: got %d bytes, want the %d bytes published", i, len(got), len(p))
				}
			}
		}),
	},
	{
		ID: "B.P19", Name: "publish-receipts", Promise: "Publish leaves its events unchanged, so publishing one again creates another event; receipts have ID, Time and Position, and positions increase",
		Faults: []string{"bus-blurs-results"},
		Test:   buslaw.On(publishReceipts),
	},
	{
		ID: "B.P20", Name: "back-pressure", Promise: "with RejectWhenFull, a Publish beyond MaxPending is refused and certainly not stored; without it, Publish waits",
		Engine: true, Faults: []string{"bus-ignores-options"},
		Test: buslaw.On(func(e *buslaw.Env) {
			stalled := &stalling{release: make(chan struct{})}
			e.Open(eventbus.Options{MaxPending: 2, WhenFull: eventbus.RejectWhenFull}, func(b backend.Backend) backend.Backend { stalled.Backend = b; return stalled })
			e.Cleanup(stalled.end)
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					if err := e.Publish(e.Context(), &eventbus.Event{ID: fmt.Sprint(i)}); err != nil {
						e.Errorf("Publish within the bound: got error %v, want none", err)
					}
				})
			}
			for i := range 2 {
				stalled.waitFor(fmt.Sprint(i), e.Soon()) // the law ignores a failure: the bus may have only one Publish of the backend under way
			}
			ctx, cancel := context.WithTimeout(e.Context(), e.Lease)
			defer cancel()
			err := e.Publish(ctx, &eventbus.Event{ID: "third"})
			stalled.end()
			wg.Wait()
			e.Is("Publish beyond the bound", err, eventbus.ErrBackpressure)
			if errors.Is(err, eventbus.ErrUnknownOutcome) {
				e.Failf("got %v, want it certainly not stored", err)
			}
		}),
	},
}

// field expects a FieldError whose Field is want.
func field(e *buslaw.Env, want string, err error) {
	e.Helper()
	if f, ok := errors.AsType[*eventbus.FieldError](err); !ok || f.Field != want {
		e.Failf("got error %v, want a FieldError of %s", err, want)
	}
}

// sameEvent expects that got equals want in all fields that a publisher may set.
func sameEvent(e *buslaw.Env, got, want eventbus.Event) {
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
			e.Failf("%s: got %q, want %q", f.name, f.got, f.want)
		}
	}
	for _, h := range want.Headers {
		if v, ok := got.Headers.Lookup(h.Name); !ok || v != h.Value {
			e.Failf("header %s: got %q, want %q", h.Name, v, h.Value)
		}
	}
}

// publishCancelled fills the slots for Publish with calls that the backend does not answer,
// until one of them waits for a slot. It returns how long after the end of their context the
// last of them returned.
func publishCancelled(e *buslaw.Env) time.Duration {
	e.Helper()
	stalled := &stalling{release: make(chan struct{})}
	e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend { stalled.Backend = b; return stalled })
	begins := e.Lease/8 + law.Hitch // by then a call has begun, or it waits for a slot
	wait := 2 * begins
	ctx, cancel := context.WithTimeout(e.Context(), wait)
	defer cancel()
	time.AfterFunc(wait+3*e.Lease+time.Second, stalled.end)
	start := time.Now()
	errs := make([]error, 10)
	calls := 0
	var wg sync.WaitGroup
	for queued := false; !queued; {
		i := calls
		if calls++; calls > len(errs) {
			e.Failf("%d calls are stored at once, want the last to wait", i)
		}
		wg.Go(func() { errs[i] = e.Publish(ctx, &eventbus.Event{ID: fmt.Sprint(i)}) })
		queued = !stalled.waitFor(fmt.Sprint(i), begins)
	}
	wg.Wait()
	took := time.Since(start) - wait
	e.By(start, wait, "Publish returned")
	sent, queued := errs[:calls-1], errs[calls-1]
	if len(sent) == 0 {
		e.Failf("nothing was sent")
	}
	for _, err := range sent {
		e.Is("what was sent", err, eventbus.ErrUnknownOutcome)
		e.Is("what was sent", err, context.DeadlineExceeded)
	}
	e.Is("what was queued", queued, eventbus.ErrUnavailable)
	e.Is("what was queued", queued, context.DeadlineExceeded)
	if errors.Is(queued, eventbus.ErrUnknownOutcome) {
		e.Failf("what was queued: got %v, want it certainly not stored", queued)
	}
	return took
}

// publishReceipts publishes one Event repeatedly.
func publishReceipts(e *buslaw.Env) {
	e.Open(eventbus.Options{Service: "shop"}, nil)
	const n = 20
	handled := make(chan eventbus.Event, 2*n)
	_, err := e.Bus.Subscribe(e.Context(), law.Topic, e.Options(eventbus.SubscribeOptions{Group: "g"}), func(_ context.Context, d *eventbus.Delivery) error {
		handled <- d.Event
		return nil
	})
	e.Must(err)
	ev, want := &eventbus.Event{Key: "k"}, map[string]eventbus.Receipt{}
	last := ""
	for range n {
		receipts, err := e.Bus.PublishReceipts(e.Context(), law.Topic, ev)
		e.Must(err)
		r := receipts[0]
		if r.ID == "" || r.Time.IsZero() || r.Duplicate || r.Position <= last {
			e.Failf("got receipt %+v after position %q, want a whole one with a later position", r, last)
		}
		want[r.ID], last = r, r.Position
	}
	if ev.ID != "" || ev.Source != "" || !ev.Time.IsZero() || ev.Position != "" || ev.Key != "k" {
		e.Failf("Publish has changed its event to %+v", ev)
	}
	if len(want) != n {
		e.Failf("got %d IDs, want %d", len(want), n)
	}
	for late := time.After(e.Patience()); len(want) > 0; {
		select {
		case d := <-handled:
			if r := want[d.ID]; d.Source != "shop" || !d.Time.Equal(r.Time) || d.Position != r.Position {
				e.Failf("got source %q, time %v, position %q, want %q and %+v", d.Source, d.Time, d.Position, "shop", r)
			}
			delete(want, d.ID)
		case <-late:
			e.Failf("%d of %d events are not handled", len(want), n)
		}
	}
}

func eventOnce(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	ctx := context.WithoutCancel(e.Context())
	once := func(id, text string) *eventbus.Event { return &eventbus.Event{ID: id, Once: text} }
	receipts, err := e.Bus.PublishReceipts(ctx, law.Topic, once("a", "x"), once("b", "x"), once("a", "y"), once("c", ""), once("c", ""))
	e.Must(err)
	for i, want := range []bool{false, true, false, false, false} {
		if receipts[i].Duplicate != want {
			e.Failf("event %d: got Duplicate %v, want %v", i, receipts[i].Duplicate, want)
		}
	}
	e.AwaitDone(4, "g")
	e.Quiet(e.Soon())
}

func publishAll(e *buslaw.Env) {
	e.Start()
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	of := func(topic, id string) eventbus.Addressed {
		return eventbus.Addressed{Topic: topic, Event: &eventbus.Event{ID: id}}
	}
	results := eventbus.PublishAll(e.Context(), e.Bus, of(law.Topic, "a"), of("other", "b"), of("no topic", "c"), of(law.Topic, "d"))
	for i, r := range results {
		_, refused := errors.AsType[*eventbus.FieldError](r.Err)
		if refused != (i == 2) || !refused && (r.Err != nil || r.Position == "") {
			e.Failf("event %d: got receipt %+v and error %v", i, r.Receipt, r.Err)
		}
	}
	e.AwaitDone(2, "g")
	ended, cancel := context.WithCancel(e.Context())
	cancel()
	for _, r := range eventbus.PublishAll(ended, e.Bus, of(law.Topic, "e"), of("other", "f")) {
		e.Is("an event of a call whose context has ended", r.Err, context.Canceled)
	}
}

func maxPayload(e *buslaw.Env) {
	e.Open(eventbus.Options{MaxPayload: 1000}, nil)
	e.Member("g", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.Is("Publish of 1,001 bytes", e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{Payload: make([]byte, 1001)}), eventbus.ErrTooLarge)
	e.Must(e.Bus.Publish(e.Context(), law.Topic, &eventbus.Event{Payload: make([]byte, 1000)}))
	e.AwaitDone(1, "g")
}
