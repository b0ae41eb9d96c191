// Package buslaw gives a law of the bus its environment: a bus on a fresh backend, a record
// of handler runs and observer events, and a check of that record.
package buslaw

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
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// An Env is the environment in which one law of the bus is tested, on a fresh backend.
type Env struct {
	*law.Env
	Bus      law.Bus
	Recorder Recorder
	Extends  bool         // the backend can extend leases
	unnamed  atomic.Int64 // number of events that the law gave no ID
}

// On makes the Test of a [law.Law] from f. After f, the Test calls CheckHistory, unless the
// law's field Again is true.
func On(f func(*Env)) func(*law.Env) {
	return func(e *law.Env) {
		be := &Env{Env: e, Extends: e.Claims(law.NeedExtender)}
		be.Recorder.init(e.Grace > 0)
		f(be)
		if !e.Law.Again {
			be.CheckHistory()
		}
	}
}

// Open makes the bus of the test. Most laws use the zero Options. If wrap is not nil, the
// bus uses the backend that wrap returns.
func (e *Env) Open(o eventbus.Options, wrap func(backend.Backend) backend.Backend) law.Bus {
	b := e.Backend
	if wrap != nil {
		b = wrap(b)
	}
	if e.Grace > 0 { // the bus may repeat a Publish whose answer got lost, and Dedup keeps it from storing the event twice
		o.Dedup = e.Limits.OnceWindow > 0
	}
	e.Bus = e.newBus(b, o)
	return e.Bus
}

// OtherBus returns a second bus, which uses the backend p. It stands for a bus in another
// process.
func (e *Env) OtherBus(p backend.Backend, o eventbus.Options) law.Bus { return e.newBus(p, o) }

func (e *Env) newBus(b backend.Backend, o eventbus.Options) law.Bus {
	o.Observer = observer.Join(o.Observer, e.Recorder.observer())
	bus := e.Harness.Bus(e.T, b, o)
	e.Cleanup(func() {
		// After a failure, handlers may still run for a while.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), 40*e.Lease)
		defer cancel()
		_ = bus.Shutdown(ctx)
	})
	return bus
}

// Start opens the bus with the zero Options.
func (e *Env) Start() law.Bus { return e.Open(eventbus.Options{}, nil) }

// Options sets the fields that a law leaves zero: the group "g", the law's lease, short
// retry delays and a timeout.
func (e *Env) Options(o eventbus.SubscribeOptions) eventbus.SubscribeOptions {
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

// Member subscribes to [law.Topic]. The Recorder keeps the runs of h under name.
func (e *Env) Member(name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.MemberOf(law.Topic, name, o, h)
}

// MemberOf is like Member, but subscribes to another topic.
func (e *Env) MemberOf(topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(e.Bus, topic, name, o, h)
}

// MemberOn is like Member, but uses the bus b.
func (e *Env) MemberOn(b law.Bus, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	return e.subscribe(b, law.Topic, name, o, h)
}

func (e *Env) subscribe(b law.Bus, topic, name string, o eventbus.SubscribeOptions, h eventbus.Handler) *eventbus.Subscription {
	e.Helper()
	o = e.Options(o)
	group := o.Group
	if group == eventbus.EachInstance { // each member is a group of its own
		group = name
	}
	s, err := b.Subscribe(e.Context(), topic, o, e.Recorder.Handler(name, group, h))
	e.Must(err)
	return s
}

// BatchMember is like Member, but h handles batches, and the retry delays are shorter.
func (e *Env) BatchMember(name string, o eventbus.SubscribeOptions, b eventbus.Batch, h eventbus.BatchHandler) *eventbus.Subscription {
	e.Helper()
	if o.Retry.Initial == 0 {
		o.Retry.Initial, o.Retry.Jitter = e.Lease/40, -1
	}
	if o.Timeout == 0 && !e.Extends {
		o.Timeout = e.Lease / 4 // three of it, and MaxWait, must fit into a lease
	}
	o = e.Options(o)
	s, err := e.Bus.SubscribeBatch(e.Context(), law.Topic, o, b, e.Recorder.BatchHandler(name, o.Group, h))
	e.Must(err)
	return s
}

// DeadLetters records the events of the dead-letter topic, under the name "dead".
func (e *Env) DeadLetters() {
	e.Helper()
	e.MemberOf(law.Topic+".dlq", "dead", eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters}, Succeed)
}

// Succeed is a handler that succeeds.
func Succeed(context.Context, *eventbus.Delivery) error { return nil }

// ErrBroken is the error of handlers that fail.
var ErrBroken = errors.New("broken")

// Events returns n events whose IDs are numbers.
func Events(n int) []*eventbus.Event { return KeyedEvents(n, 0) }

// KeyedEvents returns n events that use this many keys in turn. If keys is 0, the events
// have no keys.
func KeyedEvents(n, keys int) []*eventbus.Event {
	es := make([]*eventbus.Event, n)
	for i := range es {
		es[i] = &eventbus.Event{ID: fmt.Sprintf("%05d", i), Payload: []byte(fmt.Sprintf("payload %d", i))}
		if keys > 0 {
			es[i].Key = fmt.Sprintf("key %d", i%keys)
		}
	}
	return es
}

// Publish publishes es to [law.Topic] and records the outcome. It gives an ID to each event
// that has none, and copies Time and Position from its receipt.
func (e *Env) Publish(ctx context.Context, es ...*eventbus.Event) error {
	for _, ev := range es {
		ev.ID = cmp.Or(ev.ID, fmt.Sprintf("event %d", e.unnamed.Add(1)))
		e.Recorder.history.Record(history.Event{Kind: history.Tried, ID: ev.ID, Key: ev.Key})
	}
	receipts, err := e.Bus.PublishReceipts(ctx, law.Topic, es...)
	for i, ev := range es {
		ev.Time, ev.Position = receipts[i].Time, receipts[i].Position
		if p, ok := errors.AsType[*eventbus.PublishError](err); err == nil || ok && p.Errors[i] == nil {
			e.Recorder.history.Record(history.Event{Kind: history.Stored, ID: ev.ID})
		}
	}
	return err
}

// PublishEvents calls Publish, and fails the law if it returns an error. It returns es.
func (e *Env) PublishEvents(es ...*eventbus.Event) []*eventbus.Event {
	e.Helper()
	for part := range slices.Chunk(es, 500) {
		e.Must(e.Publish(e.Context(), part...))
	}
	return es
}

// CheckHistory checks the record of all events by the rules of package history. The given
// groups must have settled every stored event. If the backend extends leases, the attempts
// in these groups must increase by one, and the events of each key must be in order.
func (e *Env) CheckHistory(groups ...string) {
	e.Helper()
	expect := history.Expect{Groups: groups, Attempts: history.Growing, Ordered: len(groups) > 0 && e.Extends}
	switch {
	case e.Law.Uncounted, e.Grace > 0: // a broker may lose a delivery and repeat its attempt number
		expect.Attempts = history.Uncounted
	case len(groups) > 0 && e.Extends: // in other cases some deliveries reach no handler
		expect.Attempts = history.Exact
	}
	if e.Grace > 0 && len(groups) > 0 { // a handled event may be redelivered before it is settled
		e.StillAtLast()
	}
	for _, f := range e.Recorder.history.Check(expect) {
		e.Failf("history: %v\nrecorded: %s", f, e.Recorder.Summary())
	}
}

// Await waits until reached returns true. If this takes too long, it fails the law with the
// text what.
func (e *Env) Await(what string, reached func(*Recorder) bool) {
	e.Helper()
	if !e.Recorder.await(e.Patience()+20*e.Lease, reached) {
		e.Failf("waited in vain until %s\nrecorded: %s", what, e.Recorder.Summary())
	}
}

// Wait returns the next value from c. If this takes too long, it fails the law with the
// text what.
func Wait[T any](e *Env, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(e.Patience() + 20*e.Lease):
		e.Failf("waited in vain until %s\nrecorded: %s", what, e.Recorder.Summary())
	}
	return v
}

// AwaitDone waits until n runs that are recorded under the names have succeeded.
func (e *Env) AwaitDone(n int, names ...string) {
	e.Helper()
	e.Await(fmt.Sprintf("%d runs of %v have succeeded", n, names), func(r *Recorder) bool { return r.Succeeded(names...) >= n })
}

// AwaitRuns waits until n runs that are recorded under name have begun.
func (e *Env) AwaitRuns(n int, name string) {
	e.Helper()
	e.Await(fmt.Sprintf("%d runs of %s have begun", n, name), func(r *Recorder) bool { return r.Started[name] >= n })
}

// Quiet expects that no run begins within d.
func (e *Env) Quiet(d time.Duration) {
	e.Helper()
	e.Still(e.Recorder.Count(), d)
}

// Still waits for d. Then it expects that exactly this many runs have begun since the law
// began.
func (e *Env) Still(runs int, d time.Duration) {
	e.Helper()
	time.Sleep(d)
	if after := e.Recorder.Count(); after != runs {
		e.Failf("got %d more runs within %v, want none\nrecorded: %s", after-runs, d, e.Recorder.Summary())
	}
}

// End shuts the bus down.
func (e *Env) End() {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	if err := e.Bus.Shutdown(ctx); err != nil {
		e.Failf("Shutdown: got error %v, want none", err)
	}
}

// Settled expects that the given groups have no event left, and that no further run begins.
// The backend must still be open.
func (e *Env) Settled(groups ...string) {
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
				ds, err := src.Receive(ctx, 1, 0)
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
					time.Sleep(law.Pause)
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

// Observed returns the observer's events of type E. The caller must hold r.mu. In a condition
// of [Env.Await], Await holds it.
func Observed[E any](r *Recorder) (es []E) {
	for _, t := range r.observed {
		if e, ok := t.(E); ok {
			es = append(es, e)
		}
	}
	return es
}

// ObservedOf is like Observed, but locks r.mu itself.
func ObservedOf[E any](e *Env) []E {
	e.Recorder.mu.Lock()
	defer e.Recorder.mu.Unlock()
	return Observed[E](&e.Recorder)
}

// AwaitObserved waits until the observer has received n events of type E, and returns them.
func AwaitObserved[E any](e *Env, n int) []E {
	e.Helper()
	var es []E
	e.Await(fmt.Sprintf("the observer has received %d %T", n, *new(E)), func(r *Recorder) bool {
		es = Observed[E](r)
		return len(es) >= n
	})
	return es
}
