package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/buslaw"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// starveLaws are about slow, failing and hanging events, which must not stop other events.
var starveLaws = []law.Law{
	{
		ID: "B.O17", Name: "slow-key", Promise: "thousands of events of a key with a slow handler do not keep idle handlers from events of other keys",
		Needs: []law.Need{law.NeedExtender}, Faults: []string{"bus-orders-all"}, Uncounted: true,
		Test: buslaw.On(slowKey),
	},
	{
		ID: "B.O18", Name: "failing-keys", Promise: "a member still handles events of other keys when as many keys are failing as it can hold events",
		Needs: []law.Need{law.NeedDelayer, law.NeedExtender}, Faults: []string{"bus-waits-in-place"}, Uncounted: true,
		Test: buslaw.On(failingKeys),
	},
	{
		ID: "B.L16", Name: "hung-handler-shares", Promise: "events prefetched by a member with a hung handler reach an idle member within seconds, however many of their receipts have been counted",
		Needs: []law.Need{law.NeedDelayer, law.NeedExtender}, Faults: []string{"delay-ignored"}, Uncounted: true,
		Test: buslaw.On(hungHandlerShares),
	},
	{
		ID: "B.L17", Name: "prefetches-little", Promise: "after a second, a member holds at most three times as many unstarted events as it has handlers, or as many as they start during two reads of at most 100 ms",
		Needs: []law.Need{law.NeedDelayer, law.NeedExtender}, Faults: []string{"member-reads-ahead"},
		Test: buslaw.On(prefetchesLittle),
	},
}

// slowKey tests law B.O17. After the events of the other keys, the slow handler is quick, so
// that the law ends soon.
func slowKey(e *buslaw.Env) {
	e.Start()
	const hot, others = 2000, 10
	slow := e.Lease / 40
	var quick atomic.Bool
	e.Member("g", eventbus.SubscribeOptions{Concurrency: 8}, func(_ context.Context, d *eventbus.Delivery) error {
		if d.Key == "key 0" && !quick.Load() {
			time.Sleep(slow)
		}
		return nil
	})
	e.PublishEvents(buslaw.KeyedEvents(hot, 1)...)
	e.AwaitRuns(3, "g")
	published := time.Now()
	es := e.PublishEvents(otherKeys(others)...)
	for _, ev := range es {
		e.Await("event "+ev.ID+" is handled", func(r *buslaw.Recorder) bool { return r.Handled["g "+ev.ID] })
	}
	e.By(published, 10*slow, "the events of other keys were handled")
	quick.Store(true)
	e.AwaitDone(hot+others, "g")
	inOrder(e, "g")
	once(e, "g")
}

// failingKeys tests law B.O18. One half of its keys fails until the law ends.
func failingKeys(e *buslaw.Env) {
	e.Start()
	const slots = 64
	o := eventbus.SubscribeOptions{Concurrency: 8, MaxInFlight: slots, Retry: eventbus.Retry{Initial: 10 * e.Lease, Max: 10 * e.Lease}}
	e.Member("g", o, failing(func(d *eventbus.Delivery) bool { return d.Type == "fails" }))
	var all []*eventbus.Event
	for i := range 2 * slots {
		ev := &eventbus.Event{ID: fmt.Sprintf("%03d", i), Key: fmt.Sprintf("key %d", i)}
		if i%2 == 0 {
			ev.Type = "fails"
		}
		all = append(all, ev)
	}
	e.PublishEvents(all...)
	e.AwaitRuns(2*slots, "g")
	published := time.Now()
	for _, ev := range all {
		if ev.Type == "" {
			e.PublishEvents(&eventbus.Event{ID: ev.ID + " again", Key: ev.Key})
		}
	}
	e.AwaitDone(2*slots, "g")
	e.By(published, 2*time.Second, "later events of the keys that do not fail were handled")
}

// hungHandlerShares tests law B.L16. The busy member's runs are quick before one hangs, so
// that it prefetches many events.
func hungHandlerShares(e *buslaw.Env) {
	e.Start()
	idle := e.Bus
	if e.Claims(law.NeedPeer) {
		idle = e.OtherBus(e.Peer(), eventbus.Options{})
	}
	const quick, behind = 300, 300
	hangs, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	e.Cleanup(free)
	e.Member("busy", eventbus.SubscribeOptions{}, func(_ context.Context, d *eventbus.Delivery) error {
		if d.Type == "hangs" {
			close(hangs)
			<-release
		}
		return nil
	})
	es := buslaw.Events(quick + 1 + behind)
	es[quick].Type = "hangs"
	e.PublishEvents(es...)
	buslaw.Wait(e, hangs, "a handler hangs")
	started := time.Now()
	e.MemberOn(idle, "idle", eventbus.SubscribeOptions{}, buslaw.Succeed)
	e.AwaitDone(quick+behind, "busy", "idle")
	e.By(started, 5*time.Second, "the idle member had handled the events behind the hung handler")
	free()
	e.AwaitDone(quick+1+behind, "busy", "idle")
	onceAcross(e)
	e.CheckHistory("g")
}

// prefetchesLittle tests law B.L17.
func prefetchesLittle(e *buslaw.Env) {
	const handlers, run = 8, 5 * time.Millisecond
	held := &unstarted{}
	e.Open(eventbus.Options{}, func(b backend.Backend) backend.Backend {
		held.Backend = b
		return held
	})
	e.PublishEvents(buslaw.Events(2500)...)
	e.Member("g", eventbus.SubscribeOptions{Concurrency: handlers}, func(context.Context, *eventbus.Delivery) error {
		held.add(-1)
		time.Sleep(run)
		return nil
	})
	e.AwaitRuns(1, "g")
	time.Sleep(time.Second)
	held.measure()
	e.AwaitDone(2500, "g")
	n, read := held.most()
	most := max(3*handlers, handlers*int(min(2*read, 100*time.Millisecond)/run))
	if most += handlers; n > most { // each worker may have taken an event whose handler has not begun
		e.Failf("%d events were received and had not started, want at most %d with %d handlers and reads of %v", n, most, handlers, read)
	}
}

// unstarted is a backend that counts the messages that were received and not given back. The
// test subtracts the runs that have begun.
type unstarted struct {
	backend.Backend
	mu        sync.Mutex
	now, high int
	read      time.Duration // the longest Receive that brought all it had asked for
	measures  bool
}

func (u *unstarted) Unwrap() backend.Backend { return u.Backend }

func (u *unstarted) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := u.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &unstartedSource{src, u}, nil
}

func (u *unstarted) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now += n
	if u.measures {
		u.high = max(u.high, u.now)
	}
}

// took records the length of a Receive that brought all it had asked for.
func (u *unstarted) took(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read = max(u.read, d)
}

// measure makes u keep the highest count from now on.
func (u *unstarted) measure() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.measures = true
}

func (u *unstarted) most() (high int, read time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.high, u.read
}

type unstartedSource struct {
	backend.Source
	all *unstarted
}

func (u *unstartedSource) Unwrap() backend.Source { return u.Source }

func (u *unstartedSource) Receive(ctx context.Context, max int, bytes int64) ([]backend.Delivery, error) {
	start := time.Now()
	ds, err := u.Source.Receive(ctx, max, bytes)
	if len(ds) == max {
		u.all.took(time.Since(start))
	}
	u.all.add(len(ds))
	return ds, err
}

func (u *unstartedSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	v, ok := backend.As[backend.Delayer](u.Source)
	if !ok {
		return errors.ErrUnsupported
	}
	u.all.add(-len(ds))
	return v.Delay(ctx, ds)
}
