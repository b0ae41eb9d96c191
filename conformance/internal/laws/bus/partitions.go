package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/testing/process"
	"github.com/seed41896749/eventbus/observer"
)

// needsOfPartitions lists the verbs that partitions need.
var needsOfPartitions = []law.Need{law.NeedDelayer, law.NeedExtender, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Remover]()}

// partitionLaws are about TopicOptions.Partitions.
var partitionLaws = []law.Law{
	{
		ID: "B.N01", Name: "partition-order", Promise: "the events of a key are handled in order across the whole group, retries included, while three members join one after another",
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
		ID: "B.N02", Name: "partition-order-after-faults", Promise: "key order holds while one member is frozen for two leases and another dies with prefetched events",
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
		ID: "B.N03", Name: "partition-one-owner", Promise: "no partition has two owners, and no member owns more than its share, while members join and leave",
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
		ID: "B.N04", Name: "partition-no-orphan", Promise: "when a member dies, its partitions get another owner once its lease has expired, and their events are handled",
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
		ID: "B.N05", Name: "partition-number", Promise: "a bus that states a different number of partitions than the stored one is refused on first use, with both numbers",
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
		ID: "B.N06", Name: "partition-fence", Promise: "a partition's Delivery.Epoch grows with each change of owner",
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
		ID: "B.N07", Name: "partition-spread", Promise: "events without a key are spread over all partitions, and events with a key go to the partition given by its FNV-1a hash",
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
		ID: "B.N08", Name: "partition-once-in-peace", Promise: "without faults, every event is handled once, even while partitions move to joining members and back from leaving ones",
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

// within returns h in the process of m: while m is frozen its handlers stand still, and after its
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
	first := map[string]buslaw.HandlerRun{} // by ID: the first run that has handled it
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

// ownerLaws are about the member that owns a partition, and about the others.
var ownerLaws = []law.Law{
	{
		ID: "B.N10", Name: "partition-total-order", Promise: "with one partition and OrderTotal, events are handled one after another in the whole group, retries included, even after the owner has died",
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
		ID: "B.N11", Name: "partitions-of-each-instance", Promise: "with EachInstance, every member gets the events of all partitions in key order, and owns none",
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
		ID: "B.N12", Name: "partition-fails-alone", Promise: "while one partition cannot be read and a key in another fails, the events of all others are handled; State names the partition, which recovers on its own",
		Needs: needsOfPartitions, Faults: []string{"member-fails-with-others"}, Again: true,
		Test: buslaw.On(partitionFailsAlone),
	}, {
		ID: "B.N13", Name: "partition-cut-owner", Promise: "an owner that is cut off from the broker ends its runs before another member starts any, and starts none until it is reconnected",
		Needs: needsOfPartitions, Faults: []string{"partition-owned-by-all"}, Again: true,
		Test: buslaw.On(cutOwner),
	},
}

// joinAs is like join for a member with options, whose backend wrap wraps, unless wrap is nil.
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
	var runs []buslaw.HandlerRun
	for _, h := range g.Recorder.All(g.names()...) {
		if h.Name == dead.name && (h.Ended.IsZero() || h.Ended.After(died)) {
			if h.Ended, h.Err = died, errDead; h.Began.After(died) {
				continue
			}
		}
		runs = append(runs, h)
	}
	slices.SortStableFunc(runs, func(a, b buslaw.HandlerRun) int { return a.Began.Compare(b.Began) })
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

// partitionNumberLaws are about another number of partitions, which "eventbus topics set" stores.
var partitionNumberLaws = []law.Law{
	{
		ID: "B.N14", Name: "partition-number-changes", Promise: "the number of a topic's partitions can change only when it has no members and no unsettled events; afterwards key order holds, epochs keep growing, and a bus with the old number is refused",
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

// failedKeyLaws are about FailAll in a topic with partitions.
var failedKeyLaws = []law.Law{
	{
		ID: "B.N09", Name: "partition-fail-all", Promise: "with FailAll, the next owners of a partition know the failed keys of an owner that died, until one of them releases a key",
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
