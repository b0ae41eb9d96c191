package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	if b == nil {
		e.failf("the suite made no backend")
	}
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
