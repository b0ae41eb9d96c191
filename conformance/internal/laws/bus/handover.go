package bus

import (
	"context"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// handOverLaws are about programs that settle events themselves, and hand them over when a
// drain begins.
var handOverLaws = []law.Law{
	{
		ID: "B.A11", Name: "manual-hand-over", Promise: "a program that settles events itself learns that a drain has begun, and hands over the events that it holds: the drain ends at once, and another member has them soon",
		Needs: []law.Need{law.NeedDelayer, law.NeedExtender}, Faults: []string{"delay-ignored"}, Uncounted: true,
		Test: buslaw.On(handsOver),
	},
}

func handsOver(e *buslaw.Env) {
	e.Start()
	const n = 5
	held := make(chan *eventbus.ManualDelivery, n)
	s, err := e.Bus.SubscribeManual(e.Context(), law.Topic, e.Options(eventbus.SubscribeOptions{Timeout: -1}), func(_ context.Context, d *eventbus.ManualDelivery) error {
		e.Recorder.Begin("manual", d.Delivery)
		held <- d
		return nil
	})
	e.Must(err)
	drains, ok := any(s).(interface{ Draining() <-chan struct{} })
	if !ok {
		e.Failf("a Subscription does not tell that a drain has begun")
	}
	e.PublishEvents(buslaw.Events(n)...)
	var ds []*eventbus.ManualDelivery
	for range n {
		ds = append(ds, buslaw.Wait(e, held, "the program is handed five events"))
	}
	select {
	case <-drains.Draining():
		e.Failf("the subscription says that it drains before a drain")
	case <-time.After(e.Lease / 20):
	}
	e.Go(func() {
		<-drains.Draining()
		for _, d := range ds {
			if err := d.Nack(e.Context(), eventbus.Snooze(0)); err != nil {
				e.Errorf("Nack during the drain: got error %v, want none", err)
			}
		}
	})
	start := time.Now()
	e.Must(s.Drain(e.Bounded()))
	e.By(start, 0, "the drain ended")
	e.Member("other", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(n, "other")
	e.By(start, time.Second, "another member had handled the events")
	for _, h := range e.Recorder.All("other") {
		if e.Limits.Refund && h.Delivery.Attempt != 1 {
			e.Failf("%s: got attempt %d, want 1", h.Delivery.ID, h.Delivery.Attempt)
		}
	}
	e.Settled("g")
}
