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
	bus     Bus
	log     recorder
	extends bool         // the backend can extend leases
	unnamed atomic.Int64 // events
}

// run tests l.
func (l law) run(e *driverEnv) {
	if l.driver != nil {
		l.driver(e)
		return
	}
	be := &busEnv{driverEnv: e, extends: needExtender.claimed(e)}
	be.log.init(e.grace > 0)
	l.bus(be)
	if !l.again {
		be.checkHistory()
	}
}

// open makes the bus of the test. Most laws do with the zero Options; wrap, if
// set, stands between bus and backend.
func (e *busEnv) open(o eventbus.Options, wrap func(backend.Backend) backend.Backend) Bus {
	b := e.b
	if wrap != nil {
		b = wrap(b)
	}
	if e.grace > 0 { // what was stored without an answer is published again
		o.Dedup = e.limits.OnceWindow > 0
	}
	e.bus = e.newBus(b, o)
	return e.bus
}

// otherBus returns a bus on p, a peer, as another process would have one.
func (e *busEnv) otherBus(p backend.Backend) Bus { return e.newBus(p, eventbus.Options{}) }

func (e *busEnv) newBus(b backend.Backend, o eventbus.Options) Bus {
	o.Observer = observer.Join(o.Observer, e.log.observer())
	bus := e.suite.newBus(e.T, b, o)
	e.Cleanup(func() {
		// Handlers of a law that has failed may take their time.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), 40*e.lease)
		defer cancel()
		_ = bus.Shutdown(ctx)
	})
	return bus
}

// start opens the bus as most laws want it.
func (e *busEnv) start() Bus { return e.open(eventbus.Options{}, nil) }

// options fills in what a law leaves out: the group g, the lease of the suite,
// quick retries.
func (e *busEnv) options(o eventbus.SubscribeOptions) eventbus.SubscribeOptions {
	o.Group = cmp.Or(o.Group, "g")
	o.Lease = cmp.Or(o.Lease, e.lease)
	if o.Retry.Delay == nil && o.Retry.Initial == 0 {
		o.Retry.Initial, o.Retry.Jitter = e.lease/4, -1
		o.Retry.Max = cmp.Or(o.Retry.Max, 20*e.lease)
	}
	if o.Timeout == 0 {
		if o.Timeout = e.lease * 9 / 10; e.extends {
			o.Timeout = 30 * e.lease
		}
	}
	return o
}

// member subscribes to the usual topic. What h sees is recorded under name.
func (e *busEnv) member(name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.memberOf(topic, name, o, h)
}

func (e *busEnv) memberOf(topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(e.bus, topic, name, o, h)
}

// memberOn is member, on another bus than that of the test.
func (e *busEnv) memberOn(b Bus, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(b, topic, name, o, h)
}

func (e *busEnv) subscribe(b Bus, topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	o = e.options(o)
	s, err := b.Subscribe(e.Context(), topic, o, e.log.handler(name, o.Group, h))
	e.must(err)
	return s
}

// deadLetters records what goes to the dead-letter topic, under the name "dead".
func (e *busEnv) deadLetters() {
	e.Helper()
	e.memberOf(topic+".dlq", "dead", eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters}, succeed)
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

// publish publishes es to the usual topic, gives an ID to those that have none,
// and records what comes of it.
func (e *busEnv) publish(ctx context.Context, es ...*eventbus.Event) error {
	for _, ev := range es {
		ev.ID = cmp.Or(ev.ID, fmt.Sprintf("event %d", e.unnamed.Add(1)))
		e.log.history.Record(history.Event{Kind: history.Tried, ID: ev.ID, Key: ev.Key})
	}
	err := e.bus.Publish(ctx, topic, es...)
	for i, ev := range es {
		if p, ok := errors.AsType[*eventbus.PublishError](err); err == nil || ok && p.Errors[i] == nil {
			e.log.history.Record(history.Event{Kind: history.Stored, ID: ev.ID})
		}
	}
	return err
}

// publishEvents is publish without an error.
func (e *busEnv) publishEvents(es ...*eventbus.Event) []*eventbus.Event {
	e.Helper()
	for part := range slices.Chunk(es, 500) {
		e.must(e.publish(e.Context(), part...))
	}
	return es
}

// checkHistory looks at the whole history: that of the groups named is to be
// complete, with every attempt seen by a handler, and each key in order.
func (e *busEnv) checkHistory(groups ...string) {
	e.Helper()
	expect := history.Expect{Groups: groups, Attempts: history.Growing, Ordered: len(groups) > 0 && e.extends}
	switch {
	case e.law.uncounted, e.grace > 0: // a receipt that a broker forgot has a number that comes again
		expect.Attempts = history.Uncounted
	case len(groups) > 0 && e.extends: // otherwise not every receipt reaches a handler
		expect.Attempts = history.Exact
	}
	if e.grace > 0 && len(groups) > 0 { // what was handled may have to come again to be settled
		e.stillAtLast()
	}
	for _, f := range e.log.history.Check(expect) {
		e.failf("history: %v\nrecorded: %s", f, e.log.summary())
	}
}

// await waits until the record is as wanted.
func (e *busEnv) await(what string, reached func(*recorder) bool) {
	e.Helper()
	if !e.log.await(e.patience()+20*e.lease, reached) {
		e.failf("waited in vain until %s\nrecorded: %s", what, e.log.summary())
	}
}

// wait receives from c, or fails the law.
func wait[T any](e *busEnv, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(e.patience() + 20*e.lease):
		e.failf("waited in vain until %s\nrecorded: %s", what, e.log.summary())
	}
	return v
}

// awaitDone waits until so many runs have succeeded under the names.
func (e *busEnv) awaitDone(n int, names ...string) {
	e.Helper()
	e.await(fmt.Sprintf("%d runs of %v have succeeded", n, names), func(r *recorder) bool { return r.succeeded(names...) >= n })
}

// awaitRuns waits until so many runs have begun under the name.
func (e *busEnv) awaitRuns(n int, name string) {
	e.Helper()
	e.await(fmt.Sprintf("%d runs of %s have begun", n, name), func(r *recorder) bool { return r.started[name] >= n })
}

// quiet expects that nothing more comes to any handler for a while.
func (e *busEnv) quiet(d time.Duration) {
	e.Helper()
	e.still(e.log.count(), d)
}

// still expects that there are so many runs, and no more after a while.
func (e *busEnv) still(runs int, d time.Duration) {
	e.Helper()
	time.Sleep(d)
	if after := e.log.count(); after != runs {
		e.failf("got %d more runs within %v, want none\nrecorded: %s", after-runs, d, e.log.summary())
	}
}

// end shuts the bus down.
func (e *busEnv) end() {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience())
	defer cancel()
	if err := e.bus.Shutdown(ctx); err != nil {
		e.failf("Shutdown: got error %v, want none", err)
	}
}

// settled expects that every group named has nothing left and that nothing more
// comes to any handler. The backend must still be open.
func (e *busEnv) settled(groups ...string) {
	e.Helper()
	if e.grace > 0 {
		e.stillAtLast()
	}
	runs := e.log.count()
	ctx, cancel := context.WithTimeout(e.Context(), e.lease+e.soon())
	defer cancel()
	found := make(chan string, len(groups))
	for _, g := range groups {
		src := e.attach(g)
		e.reads.Go(func() {
			for ctx.Err() == nil {
				ds, err := src.Receive(ctx, 1)
				if len(ds) > 0 {
					found <- fmt.Sprintf("group %s got delivery %q, attempt %d, want none: it should have nothing left", g, ds[0].ID, ds[0].Attempt)
				}
				if err != nil && ctx.Err() == nil && !e.troubled {
					found <- fmt.Sprintf("Receive: got error %v, want none", err)
				}
				if len(ds) > 0 || err != nil && !e.troubled {
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
		e.failf("%s", what)
	case <-ctx.Done():
	}
	e.still(runs, 0)
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
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return told[E](&e.log)
}

// awaitTold waits until the observer was told of so many events of one type.
func awaitTold[E any](e *busEnv, n int) []E {
	e.Helper()
	var es []E
	e.await(fmt.Sprintf("the observer is told of %d %T", n, *new(E)), func(r *recorder) bool {
		es = told[E](r)
		return len(es) >= n
	})
	return es
}
