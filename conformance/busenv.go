package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/history"
	"github.com/seed41896749/eventbus/observer"
)

// busEnv is one test of one law of the bus, on one fresh backend. It records
// what handlers see and what the observer is told.
type busEnv struct {
	*driverEnv
	Bus      harnessBus
	Recorder recorder
	Extends  bool         // the backend can extend leases
	unnamed  atomic.Int64 // events
}

// onBus returns the test of a law of the bus. After f it checks the whole history.
func onBus(f func(*busEnv)) func(*driverEnv) {
	return func(e *driverEnv) {
		be := &busEnv{driverEnv: e, Extends: e.Claims(needExtender)}
		be.Recorder.init(e.Grace > 0)
		f(be)
		if !e.Law.Again {
			be.CheckHistory()
		}
	}
}

// Open makes the bus of the test. Most laws do with the zero Options; wrap, if
// set, stands between bus and backend.
func (e *busEnv) Open(o eventbus.Options, wrap func(backend.Backend) backend.Backend) harnessBus {
	b := e.Backend
	if wrap != nil {
		b = wrap(b)
	}
	if e.Grace > 0 { // what was stored without an answer is published again
		o.Dedup = e.Limits.OnceWindow > 0
	}
	e.Bus = e.newBus(b, o)
	return e.Bus
}

// OtherBus returns a bus on p, a peer, as another process would have one.
func (e *busEnv) OtherBus(p backend.Backend) harnessBus { return e.newBus(p, eventbus.Options{}) }

func (e *busEnv) newBus(b backend.Backend, o eventbus.Options) harnessBus {
	o.Observer = observer.Join(o.Observer, e.Recorder.observer())
	bus := e.Harness.Bus(e.T, b, o)
	e.Cleanup(func() {
		// Handlers of a law that has failed may take their time.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), 40*e.Lease)
		defer cancel()
		_ = bus.Shutdown(ctx)
	})
	return bus
}

// Start opens the bus as most laws want it.
func (e *busEnv) Start() harnessBus { return e.Open(eventbus.Options{}, nil) }

// Options fills in what a law leaves out: the group g, the lease of the suite,
// quick retries.
func (e *busEnv) Options(o eventbus.SubscribeOptions) eventbus.SubscribeOptions {
	o.Group = cmp.Or(o.Group, "g")
	o.Lease = cmp.Or(o.Lease, e.Lease)
	if o.Retry.Delay == nil && o.Retry.Initial == 0 {
		o.Retry.Initial, o.Retry.Jitter = e.Lease/4, -1
		o.Retry.Max = cmp.Or(o.Retry.Max, 20*e.Lease)
	}
	if o.Timeout == 0 {
		if o.Timeout = e.Lease * 9 / 10; e.Extends {
			o.Timeout = 30 * e.Lease
		}
	}
	return o
}

// Member subscribes to the usual topic. What h sees is recorded under name.
func (e *busEnv) Member(name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.MemberOf(topic, name, o, h)
}

func (e *busEnv) MemberOf(topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(e.Bus, topic, name, o, h)
}

// MemberOn is member, on another bus than that of the test.
func (e *busEnv) MemberOn(b harnessBus, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(b, topic, name, o, h)
}

func (e *busEnv) subscribe(b harnessBus, topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	o = e.Options(o)
	s, err := b.Subscribe(e.Context(), topic, o, e.Recorder.Handler(name, o.Group, h))
	e.Must(err)
	return s
}

// DeadLetters records what goes to the dead-letter topic, under the name "dead".
func (e *busEnv) DeadLetters() {
	e.Helper()
	e.MemberOf(topic+".dlq", "dead", eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters}, succeed)
}

func succeed(context.Context, *eventbus.Delivery) error { return nil }

var errBroken = errors.New("broken")

// events returns n events whose IDs are numbers.
func events(n int) []*eventbus.Event { return keyedEvents(n, 0) }

// keyedEvents returns n events whose keys repeat after so many; 0: no keys.
func keyedEvents(n, keys int) []*eventbus.Event {
	es := make([]*eventbus.Event, n)
	for i := range es {
		es[i] = &eventbus.Event{ID: fmt.Sprintf("%05d", i), Payload: []byte(fmt.Sprintf("payload %d", i))}
		if keys > 0 {
			es[i].Key = fmt.Sprintf("key %d", i%keys)
		}
	}
	return es
}

// Publish publishes es to the usual topic, gives an ID to those that have none,
// and records what comes of it.
func (e *busEnv) Publish(ctx context.Context, es ...*eventbus.Event) error {
	for _, ev := range es {
		ev.ID = cmp.Or(ev.ID, fmt.Sprintf("event %d", e.unnamed.Add(1)))
		e.Recorder.history.Record(history.Event{Kind: history.Tried, ID: ev.ID, Key: ev.Key})
	}
	err := e.Bus.Publish(ctx, topic, es...)
	for i, ev := range es {
		if p, ok := errors.AsType[*eventbus.PublishError](err); err == nil || ok && p.Errors[i] == nil {
			e.Recorder.history.Record(history.Event{Kind: history.Stored, ID: ev.ID})
		}
	}
	return err
}

// PublishEvents is publish without an error.
func (e *busEnv) PublishEvents(es ...*eventbus.Event) []*eventbus.Event {
	e.Helper()
	for part := range slices.Chunk(es, 500) {
		e.Must(e.Publish(e.Context(), part...))
	}
	return es
}

// CheckHistory looks at the whole history: that of the groups named is to be
// complete, with every attempt seen by a handler, and each key in order.
func (e *busEnv) CheckHistory(groups ...string) {
	e.Helper()
	expect := history.Expect{Groups: groups, Attempts: history.Growing, Ordered: len(groups) > 0 && e.Extends}
	switch {
	case e.Law.Uncounted, e.Grace > 0: // a receipt that a broker forgot has a number that comes again
		expect.Attempts = history.Uncounted
	case len(groups) > 0 && e.Extends: // otherwise not every receipt reaches a handler
		expect.Attempts = history.Exact
	}
	if e.Grace > 0 && len(groups) > 0 { // what was handled may have to come again to be settled
		e.StillAtLast()
	}
	for _, f := range e.Recorder.history.Check(expect) {
		e.Failf("history: %v\nrecorded: %s", f, e.Recorder.Summary())
	}
}

// Await waits until the record is as wanted.
func (e *busEnv) Await(what string, reached func(*recorder) bool) {
	e.Helper()
	if !e.Recorder.await(e.Patience()+20*e.Lease, reached) {
		e.Failf("waited in vain until %s\nrecorded: %s", what, e.Recorder.Summary())
	}
}

// wait receives from c, or fails the law.
func wait[T any](e *busEnv, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(e.Patience() + 20*e.Lease):
		e.Failf("waited in vain until %s\nrecorded: %s", what, e.Recorder.Summary())
	}
	return v
}

// AwaitDone waits until so many runs have succeeded under the names.
func (e *busEnv) AwaitDone(n int, names ...string) {
	e.Helper()
	e.Await(fmt.Sprintf("%d runs of %v have succeeded", n, names), func(r *recorder) bool { return r.Succeeded(names...) >= n })
}

// AwaitRuns waits until so many runs have begun under the name.
func (e *busEnv) AwaitRuns(n int, name string) {
	e.Helper()
	e.Await(fmt.Sprintf("%d runs of %s have begun", n, name), func(r *recorder) bool { return r.Started[name] >= n })
}

// Quiet expects that nothing more comes to any handler for a while.
func (e *busEnv) Quiet(d time.Duration) {
	e.Helper()
	e.Still(e.Recorder.Count(), d)
}

// Still expects that there are so many runs, and no more after a while.
func (e *busEnv) Still(runs int, d time.Duration) {
	e.Helper()
	time.Sleep(d)
	if after := e.Recorder.Count(); after != runs {
		e.Failf("got %d more runs within %v, want none\nrecorded: %s", after-runs, d, e.Recorder.Summary())
	}
}

// End shuts the bus down.
func (e *busEnv) End() {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	if err := e.Bus.Shutdown(ctx); err != nil {
		e.Failf("Shutdown: got error %v, want none", err)
	}
}

// Settled expects that every group named has nothing left and that nothing more
// comes to any handler. The backend must still be open.
func (e *busEnv) Settled(groups ...string) {
	e.Helper()
	if e.Grace > 0 {
		e.StillAtLast()
	}
	runs := e.Recorder.Count()
	ctx, cancel := context.WithTimeout(e.Context(), e.Lease+e.Soon())
	defer cancel()
	found := make(chan string, len(groups))
	for _, g := range groups {
		src := e.Attach(g)
		e.Go(func() {
			for ctx.Err() == nil {
				ds, err := src.Receive(ctx, 1)
				if len(ds) > 0 {
					found <- fmt.Sprintf("group %s got delivery %q, attempt %d, want none: it should have nothing left", g, ds[0].ID, ds[0].Attempt)
				}
				if err != nil && ctx.Err() == nil && !e.Troubled {
					found <- fmt.Sprintf("Receive: got error %v, want none", err)
				}
				if len(ds) > 0 || err != nil && !e.Troubled {
					return
				}
				if err != nil {
					time.Sleep(pause)
				}
			}
		})
	}
	select {
	case what := <-found:
		e.Failf("%s", what)
	case <-ctx.Done():
	}
	e.Still(runs, 0)
}

// told lists the events of one type that the observer was told, with the lock
// held.
func told[E any](r *recorder) (es []E) {
	for _, t := range r.told {
		if e, ok := t.(E); ok {
			es = append(es, e)
		}
	}
	return es
}

// toldOf is told, for a test that does not hold the lock.
func toldOf[E any](e *busEnv) []E {
	e.Recorder.mu.Lock()
	defer e.Recorder.mu.Unlock()
	return told[E](&e.Recorder)
}

// awaitTold waits until the observer was told of so many events of one type.
func awaitTold[E any](e *busEnv, n int) []E {
	e.Helper()
	var es []E
	e.Await(fmt.Sprintf("the observer is told of %d %T", n, *new(E)), func(r *recorder) bool {
		es = told[E](r)
		return len(es) >= n
	})
	return es
}
