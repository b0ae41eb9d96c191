package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// driverEnv is one test of one law on one fresh backend.
type driverEnv struct {
	*testing.T
	ctx       context.Context // ends with the law, or when it hangs
	cancel    context.CancelFunc
	suite     *Suite
	watch     *watch
	law       law
	b         backend.Backend
	limits    backend.Limits
	lease     time.Duration
	unclaimed string // what the law needs and the backend does not claim
	reads     sync.WaitGroup
	troubled  bool          // something was harmed: calls may fail that do not otherwise
	grace     time.Duration // how much later things may be, because the broker has trouble of its own

	cleanups struct {
		sync.Mutex
		all []func()
	}
}

// topic is where a law publishes that does not care.
const topic = "orders"

// tick is what a lower bound on time leaves to brokers that count whole
// milliseconds.
const tick = 2 * time.Millisecond

// hitch is how long a busy machine may hold up anything.
const hitch = 400 * time.Millisecond

func newDriverEnv(ctx context.Context, t *testing.T, w *watch) *driverEnv {
	ctx, cancel := context.WithCancel(ctx)
	e := &driverEnv{T: t, ctx: ctx, cancel: cancel, suite: &w.run.Suite, watch: w, law: w.law, lease: w.lease, grace: w.grace, troubled: w.grace > 0}
	e.b = e.opened(e.suite.New(t))
	e.limits = backend.LimitsOf(e.b)
	e.Cleanup(e.reads.Wait) // the contexts and sources of the test have ended before
	return e
}

// Context returns a context that ends before the cleanups of the law.
func (e *driverEnv) Context() context.Context { return e.ctx }

// Cleanup has f called on the goroutine of the law, so that the watchdog sees it hang.
func (e *driverEnv) Cleanup(f func()) {
	e.cleanups.Lock()
	defer e.cleanups.Unlock()
	e.cleanups.all = append(e.cleanups.all, f)
}

// cleanUp ends the context and calls the cleanups, the last first.
func (e *driverEnv) cleanUp() {
	e.cancel()
	for {
		e.cleanups.Lock()
		n := len(e.cleanups.all)
		if n == 0 {
			e.cleanups.Unlock()
			return
		}
		f := e.cleanups.all[n-1]
		e.cleanups.all = e.cleanups.all[:n-1]
		e.cleanups.Unlock()
		f()
	}
}

// opened returns b, which is new, with its calls recorded.
func (e *driverEnv) opened(b backend.Backend) backend.Backend {
	e.watch.opened(b)
	return &recorded{Backend: b, calls: &e.watch.calls}
}

// own returns the backend that New or Peer returned, for one of Faults.
func (e *driverEnv) own(b backend.Backend) backend.Backend {
	if r, ok := b.(*recorded); ok {
		return r.Backend
	}
	return b
}

// openBounded makes e.b a backend with room for so many messages.
func (e *driverEnv) openBounded(messages int) { e.b = e.opened(e.suite.NewBounded(e.T, messages)) }

// late says how much later than promised was in time, if anything was.
func (e *driverEnv) late() string {
	if e.grace == 0 {
		return ""
	}
	return fmt.Sprintf("what comes up to %v later than promised is in time", e.grace)
}

// missing names what the law needs and the backend does not claim.
func (e *driverEnv) missing() string {
	for _, n := range e.law.needs {
		if !n.claimed(e) {
			return n.what
		}
	}
	return ""
}

// failf ends the test. Its text should say what was got and what was wanted.
func (e *driverEnv) failf(format string, args ...any) {
	e.Helper()
	e.watch.fails(e.T, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// errorf is failf for other goroutines than the test's: the test goes on.
func (e *driverEnv) errorf(format string, args ...any) {
	e.watch.fails(e.T, fmt.Sprintf(format, args...))
}

// must expects no error.
func (e *driverEnv) must(err error) {
	e.Helper()
	if err != nil {
		e.failf("got error %v, want none", err)
	}
}

// verb expects no error of an optional verb; one that matches
// errors.ErrUnsupported means that it is not offered after all.
func (e *driverEnv) verb(err error) {
	e.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		e.unclaimed = err.Error()
		runtime.Goexit()
	}
	e.must(err)
}

// is expects an error that matches want.
func (e *driverEnv) is(what string, got, want error) {
	e.Helper()
	if !errors.Is(got, want) {
		e.failf("%s: got error %v, want one that matches %q", what, got, want)
	}
}

// soon is how late something may be that is due: half a second by the contract,
// and the slowest call to the backend, for which leases are chosen such that it
// takes less than half of one.
func (e *driverEnv) soon() time.Duration { return e.lease/2 + 500*time.Millisecond + e.grace }

// patience is how long a test waits for what must come.
func (e *driverEnv) patience() time.Duration { return e.watch.patience() }

// notBefore expects that at least d passed since start.
func (e *driverEnv) notBefore(start time.Time, d time.Duration, what string) {
	e.Helper()
	if got := time.Since(start); got < d-tick {
		e.failf("%s after %v, want not before %v", what, got, d)
	}
}

// by expects that not much more than d passed since start.
func (e *driverEnv) by(start time.Time, d time.Duration, what string) {
	e.Helper()
	if got := time.Since(start); got > d+e.soon() {
		e.failf("%s after %v, want by %v, or %v at the latest", what, got, d, d+e.soon())
	}
}

// attach makes a new member of a group of the usual topic.
func (e *driverEnv) attach(group string) backend.Source {
	e.Helper()
	return e.attachAs(backend.Config{Group: group})
}

// attachAs attaches with a config whose missing fields are filled in.
func (e *driverEnv) attachAs(c backend.Config) backend.Source {
	e.Helper()
	return e.attachTo(e.b, e.config(c))
}

// unconfirmed attaches a member that does not ask for confirmation. The member may
// then acknowledge deliveries that it no longer holds.
func (e *driverEnv) unconfirmed(group string) backend.Source {
	e.Helper()
	c := e.config(backend.Config{Group: group})
	c.ConfirmAcks = false
	return e.attachTo(e.b, c)
}

// attachTo attaches with exactly this config.
func (e *driverEnv) attachTo(b backend.Backend, c backend.Config) backend.Source {
	e.Helper()
	var src backend.Source
	e.persist("Attach", func() (err error) {
		src, err = b.Attach(e.Context(), c)
		return err
	})
	if src == nil {
		e.failf("Attach: got neither a Source nor an error")
	}
	e.Cleanup(func() { src.Close() })
	return &member{Source: src, reads: &e.reads}
}

func (e *driverEnv) config(c backend.Config) backend.Config {
	c.Topic, c.Lease = cmp.Or(c.Topic, topic), cmp.Or(c.Lease, e.lease)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1000)
	c.ConfirmAcks = true
	return c
}

// publish stores ms, in batches that the backend takes.
func (e *driverEnv) publish(ms ...*backend.Message) []*backend.Message {
	e.Helper()
	batch := cmp.Or(e.limits.Batch, 500)
	for i := 0; i < len(ms); i += batch {
		e.publishPart(ms[i:min(i+batch, len(ms))])
	}
	return ms
}

func (e *driverEnv) publishPart(ms []*backend.Message) {
	e.Helper()
	if e.troubled { // what may be repeated must not be stored twice
		for _, m := range ms {
			m.Once = e.limits.OnceWindow > 0
		}
	}
	e.persist("Publish", func() error { return e.send(ms...) })
}

// send is one Publish, to the usual topic if a message names no other.
func (e *driverEnv) send(ms ...*backend.Message) error {
	for _, m := range ms {
		m.Topic = cmp.Or(m.Topic, topic)
	}
	return e.b.Publish(e.Context(), ms)
}

// publishN publishes n messages whose IDs are numbers.
func (e *driverEnv) publishN(n int) []*backend.Message {
	e.Helper()
	return e.publish(numbered("", n)...)
}

// numbered returns n messages whose IDs are prefix and a number.
func numbered(prefix string, n int) []*backend.Message {
	ms := make([]*backend.Message, n)
	for i := range ms {
		id := fmt.Sprintf("%s%04d", prefix, i)
		ms[i] = &backend.Message{ID: id, Payload: []byte("payload of " + id)}
	}
	return ms
}

// take is one Receive. It expects what holds for each: at most max, and an error
// only if ctx is done.
func (e *driverEnv) take(ctx context.Context, src backend.Source, max int) []backend.Delivery {
	e.Helper()
	ds, err := src.Receive(ctx, max)
	if len(ds) > max {
		e.failf("Receive of at most %d: got %d", max, len(ds))
	}
	if err != nil && ctx.Err() == nil {
		if !e.troubled || !passing(err) {
			e.failf("Receive: got error %v, want none", err)
		}
		time.Sleep(pause)
	}
	for i := range ds {
		if ds[i].Err != nil {
			e.failf("delivery %q: got error %v, want none", ds[i].ID, ds[i].Err)
		}
	}
	return slices.Clone(ds) // they are lent until the next Receive
}

// receive waits for exactly n deliveries.
func (e *driverEnv) receive(src backend.Source, n int) []backend.Delivery {
	e.Helper()
	ds := e.receiveWithin(src, n, e.patience())
	if len(ds) < n {
		e.failf("got %d deliveries %v within %v, want %d", len(ds), ids(ds), e.patience(), n)
	}
	return ds
}

// one waits for one delivery.
func (e *driverEnv) one(src backend.Source) backend.Delivery {
	e.Helper()
	return e.receive(src, 1)[0]
}

// receiveWithin returns the deliveries of the next d, and at most n of them.
func (e *driverEnv) receiveWithin(src backend.Source, n int, d time.Duration) (all []backend.Delivery) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	for len(all) < n && ctx.Err() == nil {
		all = append(all, e.take(ctx, src, n-len(all))...)
	}
	return all
}

// nothing expects no delivery within d, and takes no longer than d: a Receive
// that does is waited for by the next one.
func (e *driverEnv) nothing(src backend.Source, d time.Duration, why string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), d)
	defer cancel()
	end := time.After(d)
	m := src.(*member)
	for ctx.Err() == nil {
		select {
		case r := <-m.reading(ctx, 1):
			m.read = nil
			if len(r.ds) > 0 {
				e.failf("got delivery %q, attempt %d, want none: %s", r.ds[0].ID, r.ds[0].Attempt, why)
			}
			if r.err != nil && ctx.Err() == nil && !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, context.DeadlineExceeded) {
				e.failf("Receive: got error %v, want none", r.err)
			}
		case <-end:
			return
		}
	}
}

// ack acknowledges ds. A fenced Ack that is repeated after its answer was lost is
// told of a lost lease, as the first may have acknowledged.
func (e *driverEnv) ack(src backend.Source, ds ...backend.Delivery) {
	e.Helper()
	open := false
	e.persist("Ack", func() error {
		err := src.Ack(e.Context(), backend.Lend(ds))
		if open && e.limits.FencedAcks && onlyLost(err) {
			return nil
		}
		open = open || errors.Is(err, backend.ErrUnknownOutcome)
		return err
	})
}

// onlyLost reports whether err is of lost leases and nothing else.
func onlyLost(err error) bool {
	if all, ok := errors.AsType[backend.BatchError](err); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !onlyLost(err) })
	}
	return errors.Is(err, backend.ErrLeaseLost)
}

// delay gives ds back and returns what the verb says.
func (e *driverEnv) delay(src backend.Source, d time.Duration, ds ...backend.Delivery) error {
	delayed := make([]backend.Delayed, len(ds))
	for i := range ds {
		delayed[i] = backend.Delayed{Delivery: ds[i], For: d}
	}
	v, _ := backend.As[backend.Delayer](src)
	return v.Delay(e.Context(), delayed)
}

// extend restarts the lease of ds and returns what the verb says.
func (e *driverEnv) extend(src backend.Source, ds ...backend.Delivery) error {
	v, _ := backend.As[backend.Extender](src)
	return v.Extend(e.Context(), backend.Lend(ds))
}

// maintain lets the backend do what it does on the side, if anything.
func (e *driverEnv) maintain(group string) {
	e.Helper()
	if v, ok := backend.As[backend.Maintainer](e.b); ok {
		_, err := v.Maintain(e.Context(), topic, group)
		e.must(err)
	}
}

// attempt expects an attempt number, where the backend counts.
func (e *driverEnv) attempt(d backend.Delivery, want int) {
	e.Helper()
	if d.Attempt != want && d.Attempt != 0 {
		e.failf("delivery %q: got attempt %d, want %d (or 0, not counted)", d.ID, d.Attempt, want)
	}
}

func ids(ds []backend.Delivery) []string {
	s := make([]string, len(ds))
	for i := range ds {
		s[i] = ds[i].ID
	}
	return s
}

func idsOf(ms []*backend.Message) []string {
	s := make([]string, len(ms))
	for i := range ms {
		s[i] = ms[i].ID
	}
	return s
}
