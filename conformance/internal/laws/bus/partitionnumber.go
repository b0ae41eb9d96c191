package bus

import (
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/internal/partition"
)

// partitionNumberLaws are about another number of partitions, which "eventbus topics set" stores.
var partitionNumberLaws = []law.Law{
	{
		ID: "B.N14", Name: "partition-number-changes", Promise: "a topic gets another number of partitions only when it has no member and no unsettled event; then the order of keys holds, epochs go on growing, and a bus with the old number is refused",
		Needs:  append([]law.Need{law.NeedVerb[backend.Admin](), law.NeedVerb[backend.Statser]()}, needsOfPartitions...),
		Faults: []string{"partition-owned-by-all"}, Again: true,
		Test: buslaw.On(numberChanges),
	},
}

func numberChanges(e *buslaw.Env) {
	old := newPartitioned(e, 3)
	m := old.join(buslaw.Succeed)
	es := buslaw.KeyedEvents(120, 10)
	e.PublishEvents(es[:40]...)
	e.AwaitDone(40, m.name)
	old.settles()
	old.keepsNumber("a member lives", 5)
	e.Must(m.sub.Drain(e.Context()))
	e.PublishEvents(es[40:80]...)
	old.keepsNumber("40 events are not settled", 5)
	last := old.join(buslaw.Succeed)
	e.AwaitDone(40, last.name)
	e.Must(last.sub.Drain(e.Context()))
	old.getsNumber(5)

	err := old.bus.Publish(e.Context(), law.Topic, &eventbus.Event{ID: "x", Key: "k"})
	if number, ok := errors.AsType[*eventbus.PartitionsError](err); !ok || number.Stored != 5 || number.Stated != 3 {
		e.Failf("Publish with 3 partitions, where 5 are stored: got error %v, want a *PartitionsError with both", err)
	}
	now := newPartitioned(e, 5)
	now.joined = old.joined // so that names differ
	for range 2 {
		now.join(failSome)
	}
	now.settles()
	e.PublishEvents(es[80:]...)
	e.AwaitDone(40, now.names()...)
	now.ordered()
	for _, h := range e.Recorder.All(now.names()...) {
		for _, before := range e.Recorder.All(last.name) {
			if h.Delivery.Epoch <= before.Delivery.Epoch {
				e.Failf("%s has epoch %d after the change, and %s had %d before it", h.Delivery.ID, h.Delivery.Epoch, before.Delivery.ID, before.Delivery.Epoch)
			}
		}
	}
}

// keepsNumber expects that the topic does not get n partitions.
func (g *partitioned) keepsNumber(why string, n int) {
	g.Helper()
	if _, err := g.change(n).Run(g.Context()); err == nil {
		g.Failf("the topic has %d partitions now, although %s", n, why)
	}
}

// getsNumber gives the topic n partitions.
func (g *partitioned) getsNumber(n int) {
	g.Helper()
	r, err := g.change(n).Run(g.Context())
	g.Must(err)
	if r.Now != n {
		g.Failf("the change says that the topic has %d partitions, want %d", r.Now, n)
	}
}

func (g *partitioned) change(n int) *partition.Change {
	return &partition.Change{
		Backend: g.bus.Backend(), Topic: law.Topic, Number: n, By: "the law",
		Confirm: func(partition.Loss) error { return errors.New("the law agrees to no loss") },
	}
}
