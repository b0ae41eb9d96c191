package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/internal/testing/process"
	"github.com/seed41896749/eventbus/observer"
)

// needsOfPartitions are the verbs that partitions need.
var needsOfPartitions = []law.Need{law.NeedDelayer, law.NeedExtender, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()}

// partitionLaws are about TopicOptions.Partitions.
var partitionLaws = []law.Law{
	{
		ID: "B.N01", Name: "partition-order", Promise: "the events of a key are handled in order in the whole group, retries included, while three members join one after another",
		Needs: needsOfPartitions, Faults: []string{"bus-ignores-options"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			es := buslaw.KeyedEvents(600, 20)
			for i := range 3 {
				g.join(failSome)
				e.PublishEvents(es[200*i : 200*(i+1)]...)
				time.Sleep(e.Soon() / 3)
			}
			g.settles()
			e.AwaitDone(600, g.names()...)
			g.ordered()
		}),
	}, {
		ID: "B.N02", Name: "partition-order-after-faults", Promise: "the order of a key holds while one member is frozen for two leases, and another one dies with prefetched events",
		Needs: needsOfPartitions, Faults: []string{"partition-leases-long"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			for range 3 {
				g.join(slow)
			}
			g.settles()
			es := buslaw.KeyedEvents(600, 20)
			e.PublishEvents(es[:400]...)
			e.AwaitDone(30, g.names()...)
			g.members[0].Freeze()
			g.members[1].Die()
			e.PublishEvents(es[400:]...)
			time.Sleep(2 * g.lease)
			g.members[0].Thaw()
			e.Await("all events are handled", func(r *buslaw.Recorder) bool { return g.handled(r) == 600 })
			g.ordered()
		}),
	}, {
		ID: "B.N03", Name: "partition-one-owner", Promise: "no partition has two owners, and no member has more than its share, while members join and leave",
		Needs: needsOfPartitions, Faults: []string{"partition-owned-by-all"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			for range 4 {
				g.join(buslaw.Succeed)
				g.settles()
			}
			for len(g.members) > 1 {
				m := g.members[0]
				g.members = g.members[1:]
				e.Must(m.sub.Drain(e.Context()))
				g.settles()
			}
		}),
	}, {
		ID: "B.N04", Name: "partition-no-orphan", Promise: "the partitions of a member that dies have another owner when its lease has passed, and their events are handled",
		Needs: needsOfPartitions, Faults: []string{"partition-leases-long"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			g.join(buslaw.Succeed)
			g.join(buslaw.Succeed)
			g.settles()
			g.members[0].Die()
			g.members = g.members[1:]
			g.settles()
			e.PublishEvents(buslaw.KeyedEvents(60, 30)...)
			e.AwaitDone(60, g.members[0].name)
		}),
	}, {
		ID: "B.N05", Name: "partition-number", Promise: "a bus that states another number of partitions than the stored one is refused at its first use, with both numbers",
		Needs: needsOfPartitions, Faults: []string{"bus-ignores-options"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			newPartitioned(e, 4)
			e.PublishEvents(buslaw.KeyedEvents(1, 1)...)
			other := newPartitioned(e, 5)
			err := other.bus.Publish(e.Context(), law.Topic, &eventbus.Event{ID: "x"})
			refused := func(err error) bool {
				number, ok := errors.AsType[*eventbus.PartitionsError](err)
				return ok && number.Stored == 4 && number.Stated == 5 && number.Topic == law.Topic
			}
			if !refused(err) {
				e.Failf("Publish with 5 partitions, where 4 are stored: got error %v, want a *PartitionsError with both", err)
			}
			_, err = other.bus.Subscribe(e.Context(), law.Topic, eventbus.SubscribeOptions{Group: "g"}, buslaw.Succeed)
			if !refused(err) {
				e.Failf("Subscribe with 5 partitions, where 4 are stored: got error %v, want a *PartitionsError with both", err)
			}
		}),
	}, {
		ID: "B.N06", Name: "partition-fence", Promise: "Delivery.Epoch of a partition grows with each change of its owner",
		Needs: needsOfPartitions, Faults: []string{"partition-owned-by-all"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 2)
			last := map[int]int{}
			for i := range 3 {
				m := g.join(buslaw.Succeed)
				g.settles()
				e.PublishEvents(named(fmt.Sprint("round-", i, "-"), 20)...)
				e.AwaitDone(20, m.name)
				for _, h := range e.Recorder.All(m.name) {
					if d := h.Delivery; i > 0 && d.Epoch <= last[d.Partition] {
						e.Failf("owner %d of partition %d has epoch %d, want more than %d", i+1, d.Partition, d.Epoch, last[d.Partition])
					}
				}
				for _, h := range e.Recorder.All(m.name) {
					last[h.Delivery.Partition] = h.Delivery.Epoch
				}
				e.Must(m.sub.Drain(e.Context()))
				g.members = nil
			}
		}),
	}, {
		ID: "B.N07", Name: "partition-spread", Promise: "events without a key go to all partitions, and events with a key to the partition of its FNV-1a hash",
		Needs: needsOfPartitions, Engine: true, Faults: []string{"bus-ignores-options"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			m := g.join(buslaw.Succeed)
			e.PublishEvents(named("free-", 80)...)
			keyed := named("keyed-", 40)
			for _, ev := range keyed {
				ev.Key = ev.ID
			}
			e.PublishEvents(keyed...)
			e.AwaitDone(120, m.name)
			counts := map[int]int{}
			for _, h := range e.Recorder.All(m.name) {
				d := h.Delivery
				if d.Topic != law.Topic || d.Key != "" && d.Partition != eventbus.PartitionOf(d.Key, 4) {
					e.Failf("key %q: got topic %s and partition %d, want %s and %d", d.Key, d.Topic, d.Partition, law.Topic, eventbus.PartitionOf(d.Key, 4))
				}
				if d.Key == "" {
					counts[d.Partition]++
				}
			}
			if len(counts) != 4 || slices.Max(slices.Collect(maps.Values(counts))) > 40 {
				e.Failf("80 events without a key: got %v by partition, want about 20 in each of 4", counts)
			}
		}),
	}, {
		ID: "B.N08", Name: "partition-once-in-peace", Promise: "in peace every event is handled once, also while partitions move to members that join and back from members that leave",
		Needs: needsOfPartitions, Faults: []string{"bus-runs-twice"}, Again: true,
		Test: buslaw.On(func(e *buslaw.Env) {
			g := newPartitioned(e, 4)
			es := buslaw.KeyedEvents(500, 20)
			for i := range 3 {
				g.join(failSome)
				e.PublishEvents(es[100*i : 100*(i+1)]...)
				g.settles()
			}
			for i := range 2 {
				m := g.members[0]
				g.members = g.members[1:]
				e.PublishEvents(es[300+100*i : 400+100*i]...)
				e.Must(m.sub.Drain(e.Context()))
			}
			e.AwaitDone(500, g.names()...)
			e.Quiet(e.Soon())
			if n := e.Recorder.Succeeded(g.names()...); n != 500 {
				e.Failf("500 events were handled %d times, want each once", n)
			}
			g.ordered()
		}),
	},
}

// A partitioned is a group of a topic with partitions. Each member has a process of its own.
type partitioned struct {
	*buslaw.Env
	n, joined int
	lease     time.Duration
	bus       law.Bus
	members   []*partitionMember
	all       []*partitionMember
}

type partitionMember struct {
	*process.Process
	name string
	sub  *eventbus.Subscription
}

// newPartitioned opens the bus that publishes, with n partitions.
func newPartitioned(e *buslaw.Env, n int) *partitioned {
	g := &partitioned{Env: e, n: n, lease: max(4*time.Second, 2*e.Lease)}
	g.bus = e.Open(g.options(), func(b backend.Backend) backend.Backend { return &process.Process{Backend: b} })
	return g
}

func (g *partitioned) options() eventbus.Options {
	return eventbus.Options{
		Observer: observer.Observer{Failed: func(observer.Failed) {}},
		Topics:   map[string]eventbus.TopicOptions{law.Topic: {Partitions: g.n}},
	}
}

// join adds a member, with a backend of its own if there can be one.
func (g *partitioned) join(h eventbus.Handler) *partitionMember {
	g.Helper()
	return g.joinAs(eventbus.SubscribeOptions{Concurrency: 4}, nil, h)
}

// within returns h in the process of m: while it is frozen its handlers stand still, and after its
// death none succeeds.
func (m *partitionMember) within(h eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		err := h(ctx, d)
		if !m.Wait() {
			return errors.Join(err, errDead)
		}
		return err
	}
}

var errDead = errors.New("the process has died")

func (g *partitioned) names() (names []string) {
	for _, m := range g.all {
		names = append(names, m.name)
	}
	return names
}

// settles waits until the members own all partitions, each its share, and checks meanwhile that
// no partition has two owners.
func (g *partitioned) settles() {
	g.Helper()
	most := (g.n + len(g.members) - 1) / len(g.members)
	var owned [][]int
	for end := time.Now().Add(g.lease + 6*time.Second + g.Patience()); time.Now().Before(end); time.Sleep(law.Pause) {
		owned = owned[:0]
		by, fair := map[int]int{}, true
		for i, m := range g.members {
			own := m.sub.Partitions()
			owned = append(owned, own)
			fair = fair && len(own) <= most
			for _, p := range own {
				if other, has := by[p]; has {
					if slices.Contains(g.members[other].sub.Partitions(), p) && slices.Contains(m.sub.Partitions(), p) {
						g.Failf("partition %d has two owners: %s and %s", p, g.members[other].name, m.name)
					}
				}
				by[p] = i
			}
		}
		if fair && len(by) == g.n {
			return
		}
	}
	g.Failf("of %d partitions the members own %v, want all, and at most %d each", g.n, owned, most)
}

// handled returns how many events were handled. The caller holds the lock of r.
func (g *partitioned) handled(r *buslaw.Recorder) int {
	done := map[string]bool{}
	for _, name := range g.names() {
		for key := range r.Handled {
			if id, ok := strings.CutPrefix(key, name+" "); ok {
				done[id] = true
			}
		}
	}
	return len(done)
}

// ordered checks that no event began before all earlier events of its key were handled.
func (g *partitioned) ordered() {
	g.Helper()
	first := map[string]buslaw.Handling{} // by ID: the first run that has handled it
	runs := g.Recorder.All(g.names()...)
	byKey := map[string][]string{}
	for _, h := range runs {
		d := h.Delivery
		if !slices.Contains(byKey[d.Key], d.ID) {
			byKey[d.Key] = append(byKey[d.Key], d.ID)
		}
		if f, has := first[d.ID]; h.Err == nil && h.Cause == nil && !h.Ended.IsZero() && (!has || h.Ended.Before(f.Ended)) {
			first[d.ID] = h
		}
	}
	for _, h := range runs {
		slices.Sort(byKey[h.Delivery.Key])
		for _, before := range byKey[h.Delivery.Key] {
			if before >= h.Delivery.ID {
				break
			}
			if f, has := first[before]; h.Cause == nil && (!has || f.Ended.After(h.Began)) {
				g.Failf("%s began %s of %s at %v, as owner %d, and %s ran at %s from %v to %v, attempt %d, owner %d",
					h.Name, h.Delivery.ID, h.Delivery.Key, h.Began, h.Delivery.Epoch, before, f.Name, f.Began, f.Ended, f.Delivery.Attempt, f.Delivery.Epoch)
			}
		}
	}
}

// failSome fails the first attempt of some events.
func failSome(_ context.Context, d *eventbus.Delivery) error {
	if n, _ := strconv.Atoi(d.ID); d.Attempt == 1 && n%23 == 0 {
		return buslaw.ErrBroken
	}
	return nil
}

// slow takes a while for each event.
func slow(ctx context.Context, d *eventbus.Delivery) error {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failSome(ctx, d)
}
