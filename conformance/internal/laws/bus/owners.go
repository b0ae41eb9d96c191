package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/internal/testing/process"
	"github.com/seed41896749/eventbus/observer"
)

// ownerLaws are about the member that owns a partition, and about the others.
var ownerLaws = []law.Law{
	{
		ID: "B.N10", Name: "partition-total-order", Promise: "with one partition and OrderTotal, events are handled one after another in the whole group, retries included, also after the owner has died",
		Needs: needsOfPartitions, Faults: []string{"partition-owned-by-all", "bus-ignores-order"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 1)
			for range 2 {
				g.joinAs(eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, nil, slow)
			}
			g.settles()
			es := buslaw.KeyedEvents(80, 7)
			e.PublishEvents(es[:60]...)
			e.AwaitDone(30, g.names()...)
			owner := g.owner(0)
			owner.Die()
			died := time.Now()
			e.PublishEvents(es[60:]...)
			e.Await("all events are handled", func(r *buslaw.Recorder) bool { return g.handled(r) == 80 })
			g.inTotalOrder(owner, died)
		}),
	}, {
		ID: "B.N11", Name: "partitions-of-each-instance", Promise: "with EachInstance every member gets the events of all partitions, in the order of keys, and owns none",
		Needs: needsOfPartitions, Faults: []string{"bus-shares-each"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 3)
			for range 2 {
				g.joinAs(eventbus.SubscribeOptions{Group: eventbus.EachInstance, Concurrency: 4, Lease: e.Lease}, nil, failSome)
			}
			e.PublishEvents(buslaw.KeyedEvents(60, 10)...)
			for _, m := range g.members {
				e.AwaitDone(60, m.name)
				if e.Grace == 0 { // events may be redelivered after a failover
					inOrder(e, m.name)
				}
				if owned := m.sub.Partitions(); len(owned) > 0 {
					e.Failf("%s owns %v, want none", m.name, owned)
				}
			}
		}),
	}, {
		ID: "B.N12", Name: "partition-fails-alone", Promise: "while one partition cannot be read, and a key of another one fails, the events of all others are handled; State names the partition, which heals alone",
		Needs: needsOfPartitions, Faults: []string{"member-fails-with-others"}, Again: true,
		Test: buslaw.On(partitionFailsAlone),
	}, {
		ID: "B.N13", Name: "partition-cut-owner", Promise: "an owner that is cut from the broker ends its runs before another member begins, and begins none until it is back",
		Needs: needsOfPartitions, Faults: []string{"partition-owned-by-all"}, Again: true,
		Test: buslaw.On(cutOwner),
	},
}

// joinAs is like join for a member with options, whose backend wrap wraps; nil: it does not.
func (g *partitioned) joinAs(o eventbus.SubscribeOptions, wrap func(backend.Backend) backend.Backend, h eventbus.Handler) *partitionMember {
	g.Helper()
	g.joined++
	b := g.Backend
	if g.Claims(law.NeedPeer) {
		b = g.Peer()
	}
	m := &partitionMember{Process: &process.Process{Backend: b}, name: fmt.Sprintf("member-%d", g.joined)}
	g.Cleanup(m.Thaw)
	b = m.Process
	if wrap != nil {
		b = wrap(b)
	}
	bus := g.OtherBus(b, g.options())
	o.Lease = cmp.Or(o.Lease, g.lease)
	m.sub = g.MemberOn(bus, m.name, o, m.within(h))
	g.members, g.all = append(g.members, m), append(g.all, m)
	return m
}

// owner waits for the owner of a partition, and returns it.
func (g *partitioned) owner(p int) *partitionMember {
	g.Helper()
	for end := time.Now().Add(g.Patience()); time.Now().Before(end); time.Sleep(law.Pause) {
		for _, m := range g.members {
			if slices.Contains(m.sub.Partitions(), p) {
				return m
			}
		}
	}
	g.Failf("partition %d has no owner", p)
	return nil
}

// inTotalOrder checks that no event began while another one ran, or before all earlier ones were
// handled. Runs of dead count only as far as they were before its death.
func (g *partitioned) inTotalOrder(dead *partitionMember, died time.Time) {
	g.Helper()
	var runs []buslaw.Handling
	for _, h := range g.Recorder.All(g.names()...) {
		if h.Name == dead.name && (h.Ended.IsZero() || h.Ended.After(died)) {
			if h.Ended, h.Err = died, errDead; h.Began.After(died) {
				continue
			}
		}
		runs = append(runs, h)
	}
	slices.SortStableFunc(runs, func(a, b buslaw.Handling) int { return a.Began.Compare(b.Began) })
	handled := map[string]bool{}
	for i, h := range runs {
		if i > 0 && runs[i-1].Ended.After(h.Began) {
			g.Failf("%s began %s while %s ran %s", h.Name, h.Delivery.ID, runs[i-1].Name, runs[i-1].Delivery.ID)
		}
		for _, ev := range buslaw.Events(80) {
			if ev.ID < h.Delivery.ID && !handled[ev.ID] {
				g.Failf("%s began %s before %s was handled", h.Name, h.Delivery.ID, ev.ID)
			}
		}
		handled[h.Delivery.ID] = handled[h.Delivery.ID] || h.Err == nil
	}
}

func partitionFailsAlone(e *buslaw.Env) {
	const n = 3
	g := newPartitioned(e, n)
	keys := map[int]string{} // one of each partition
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("key ", i)
		keys[eventbus.PartitionOf(key, n)] = key
	}
	var denied, failing atomic.Bool
	denied.Store(true)
	failing.Store(true)
	unreadable := eventbus.PartitionTopics(law.Topic, n)[0]
	m := g.joinAs(eventbus.SubscribeOptions{Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: -1, Initial: e.Lease / 8, Max: e.Lease / 8, Jitter: -1}}, func(b backend.Backend) backend.Backend {
		return &denyingTopic{Backend: b, topic: unreadable, denied: &denied}
	}, func(_ context.Context, d *eventbus.Delivery) error {
		if d.Key == keys[1] && failing.Load() {
			return buslaw.ErrBroken
		}
		return nil
	})
	g.settles()
	var es []*eventbus.Event
	for i := range 40 {
		es = append(es, &eventbus.Event{ID: fmt.Sprintf("%05d", i), Key: append([]string{keys[0], keys[1], keys[2]}, otherKey(1, n, keys[1]))[i%4]})
	}
	e.PublishEvents(es...)
	e.AwaitDone(20, m.name)
	for _, h := range e.Recorder.All(m.name) {
		if h.Err == nil && (h.Delivery.Partition == 0 || h.Delivery.Key == keys[1]) {
			e.Failf("%s of partition %d was handled, although it could not be", h.Delivery.ID, h.Delivery.Partition)
		}
	}
	for end := time.Now().Add(e.Patience()); ; time.Sleep(law.Pause) {
		state, err := m.sub.State()
		if state == observer.Degraded && err != nil && strings.Contains(err.Error(), unreadable) {
			break
		}
		if time.Now().After(end) {
			e.Failf("State: got %s, %v, want degraded with an error that names %s", state, err, unreadable)
		}
	}
	denied.Store(false)
	failing.Store(false)
	e.AwaitDone(40, m.name)
	g.ordered()
}

// otherKey returns a key of partition p that is not the given one.
func otherKey(p, n int, key string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("other ", i); other != key && eventbus.PartitionOf(other, n) == p {
			return other
		}
	}
}

func cutOwner(e *buslaw.Env) {
	g := newPartitioned(e, 2)
	var cut atomic.Bool
	h := func(ctx context.Context, d *eventbus.Delivery) error {
		if !cut.Load() {
			return slow(ctx, d)
		}
		<-ctx.Done() // until the member knows that it is cut
		return context.Cause(ctx)
	}
	one := g.join(h)
	two := g.join(slow)
	g.settles()
	es := buslaw.KeyedEvents(300, 20)
	e.PublishEvents(es[:200]...)
	e.AwaitDone(20, one.name)
	lost := one.sub.Partitions()
	cut.Store(true)
	one.Cut(true)
	g.members = []*partitionMember{two}
	e.PublishEvents(es[200:280]...)
	g.settles()
	e.Await("the other member has handled the rest", func(r *buslaw.Recorder) bool { return g.handled(r) == 280 })
	first := map[int]time.Time{} // by partition: the first run of the new owner
	for _, r := range e.Recorder.All(two.name) {
		if p := r.Delivery.Partition; slices.Contains(lost, p) && first[p].IsZero() {
			first[p] = r.Began
		}
	}
	for _, r := range e.Recorder.All(one.name) {
		at := first[r.Delivery.Partition]
		if !at.IsZero() && (r.Began.After(at) || r.Ended.IsZero() || r.Ended.After(at)) {
			e.Failf("the owner that was cut ran %s of partition %d from %v to %v, and its next owner began at %v", r.Delivery.ID, r.Delivery.Partition, r.Began, r.Ended, at)
		}
		if r.Err != nil && !errors.Is(r.Err, buslaw.ErrBroken) && !errors.Is(r.Err, eventbus.ErrLeaseLost) {
			e.Failf("a run of the owner that was cut ended with error %v, want ErrLeaseLost", r.Err)
		}
	}
	cut.Store(false)
	one.Cut(false)
	g.members = []*partitionMember{one, two}
	g.settles()
	e.PublishEvents(es[280:]...)
	e.Await("all events are handled", func(r *buslaw.Recorder) bool { return g.handled(r) == 300 })
	g.ordered()
}
