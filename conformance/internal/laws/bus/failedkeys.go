package bus

import (
	"slices"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// failedKeyLaws are about FailAll in a topic with partitions.
var failedKeyLaws = []law.Law{
	{
		ID: "B.N09", Name: "partition-fail-all", Promise: "with FailAll the next owners of a partition know the failed keys of an owner that died, until one of them releases a key",
		Needs: needsOfPartitions, Faults: []string{"partition-forgets-failed-keys"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 2)
			e.DeadLetters()
			o := eventbus.SubscribeOptions{OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 1}, Concurrency: 4}
			first := g.joinAs(o, nil, failing(func(d *eventbus.Delivery) bool { return d.ID == "bad" }))
			e.PublishEvents(&eventbus.Event{ID: "bad", Key: "k"})
			e.AwaitDone(1, "dead")
			e.PublishEvents(&eventbus.Event{ID: "behind", Key: "k"})
			e.AwaitDone(2, "dead")
			first.Die()

			g.members = nil
			second := g.joinAs(o, nil, buslaw.Succeed)
			g.settles()
			e.PublishEvents(&eventbus.Event{ID: "later", Key: "k"}, &eventbus.Event{ID: "fine", Key: "other"})
			e.AwaitDone(3, "dead")
			e.AwaitDone(1, second.name)
			if keys := second.sub.FailedKeys(); !slices.Equal(keys, []string{"k"}) {
				e.Failf("the second owner has the failed keys %q, want %q", keys, "k")
			}
			for _, h := range e.Recorder.All(second.name) {
				if h.Delivery.Key == "k" {
					e.Failf("the second owner ran %s, an event of a failed key", h.Delivery.ID)
				}
			}
			if !second.sub.ReleaseKey("k") {
				e.Failf("ReleaseKey of the failed key: got false")
			}
			e.Must(second.sub.Drain(e.Context()))

			g.members = nil
			third := g.joinAs(o, nil, buslaw.Succeed)
			e.PublishEvents(&eventbus.Event{ID: "after", Key: "k"})
			e.AwaitDone(1, third.name)
		}),
	},
}
