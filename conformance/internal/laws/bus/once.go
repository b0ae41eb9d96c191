package bus

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

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
