package law

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/conformance/internal/watch"
)

// A trial is one test of one law. It knows the law's verdict, deadlines and cleanups.
type trial struct {
	*testing.T
	ctx       context.Context // ends with the law, or when it hangs
	cancel    context.CancelFunc
	watch     *watch.Watch
	Law       Law
	Lease     time.Duration
	Grace     time.Duration // how much later things may be, because the broker has trouble
	Troubled  bool          // the law has done harm, so that more calls may fail
	unclaimed string        // a verb or fact that the law needs and the backend does not claim

	cleanups struct {
		sync.Mutex
		all []func()
	}
}

// Tick is subtracted from each lower bound on time, because some brokers count whole
// milliseconds.
const Tick = 2 * time.Millisecond

// Hitch is how long a busy machine may delay anything.
const Hitch = 400 * time.Millisecond

// Pause is how long a test waits before it repeats a failed call.
const Pause = 20 * time.Millisecond

// Notice is how long a driver may take to find out that its broker does not
// answer.
const Notice = 5 * time.Second

func newTrial(ctx context.Context, t *testing.T, w *watch.Watch, l Law) *trial {
	ctx, cancel := context.WithCancel(ctx)
	return &trial{T: t, ctx: ctx, cancel: cancel, watch: w, Law: l, Lease: w.Lease, Grace: w.Grace, Troubled: w.Grace > 0}
}

// Context returns a context that ends before the cleanups of the law.
func (t *trial) Context() context.Context { return t.ctx }

// Cleanup has f called on the goroutine of the law, so that the watchdog sees it hang.
func (t *trial) Cleanup(f func()) {
	t.cleanups.Lock()
	defer t.cleanups.Unlock()
	t.cleanups.all = append(t.cleanups.all, f)
}

// cleanUp ends the context and calls the cleanups, the last first.
func (t *trial) cleanUp() {
	t.cancel()
	for {
		t.cleanups.Lock()
		n := len(t.cleanups.all)
		if n == 0 {
			t.cleanups.Unlock()
			return
		}
		f := t.cleanups.all[n-1]
		t.cleanups.all = t.cleanups.all[:n-1]
		t.cleanups.Unlock()
		f()
	}
}

// Lacks names the verb or fact that the law needs and the backend does not claim.
func (t *trial) Lacks() string { return t.unclaimed }

// Late says how much later than promised was accepted, if anything was.
func (t *trial) Late() string {
	if t.Grace == 0 {
		return ""
	}
	return fmt.Sprintf("what comes up to %v later than promised is in time", t.Grace)
}

// Failf ends the test. Its text should have the result and the expected result.
func (t *trial) Failf(format string, args ...any) {
	t.Helper()
	t.watch.Fails(t.T, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Errorf is Failf for other goroutines than the test's. The test continues.
func (t *trial) Errorf(format string, args ...any) {
	t.watch.Fails(t.T, fmt.Sprintf(format, args...))
}

// Must expects no error.
func (t *trial) Must(err error) {
	t.Helper()
	if err != nil {
		t.Failf("got error %v, want none", err)
	}
}

// Verb expects no error of an optional verb. An error that matches
// errors.ErrUnsupported means that the backend does not offer the verb after all.
func (t *trial) Verb(err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.unclaimed = err.Error()
		runtime.Goexit()
	}
	t.Must(err)
}

// Is expects an error that matches want.
func (t *trial) Is(what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Failf("%s: got error %v, want one that matches %q", what, got, want)
	}
}

// Persist calls f until it returns no error. An error is a failure, unless the law
// has harmed a broker that may not be well yet.
func (t *trial) Persist(what string, f func() error) {
	t.Helper()
	end := time.Now().Add(t.Patience())
	for {
		err := f()
		if err == nil {
			return
		}
		if !t.Troubled || !Passing(err) || time.Now().After(end) {
			t.Failf("%s: got error %v, want none", what, err)
		}
		time.Sleep(Pause)
	}
}

// Soon is how late a due message may be. The contract allows half a second. The slowest
// call to the backend takes less than the other half of a lease.
func (t *trial) Soon() time.Duration { return t.Lease/2 + 500*time.Millisecond + t.Grace }

// Patience is how long a test waits for an event that must come.
func (t *trial) Patience() time.Duration { return t.watch.Patience() }

// NotBefore expects that at least d passed since start.
func (t *trial) NotBefore(start time.Time, d time.Duration, what string) {
	t.Helper()
	if got := time.Since(start); got < d-Tick {
		t.Failf("%s after %v, want not before %v", what, got, d)
	}
}

// By expects that not much more than d passed since start.
func (t *trial) By(start time.Time, d time.Duration, what string) {
	t.Helper()
	if got := time.Since(start); got > d+t.Soon() {
		t.Failf("%s after %v, want by %v, or %v at the latest", what, got, d, d+t.Soon())
	}
}

// Mostly expects that most of several times were within limit, because a machine may be
// busy now and then.
func (t *trial) Mostly(took []time.Duration, limit time.Duration, what string) {
	t.Helper()
	limit += t.Grace
	slices.Sort(took)
	if median := took[len(took)/2]; median > limit {
		t.Failf("%s after %v, want mostly within %v", what, took, limit)
	}
}

// Within returns a context for a call that is to end in time.
func (t *trial) Within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Bounded returns a context for calls that should end by themselves.
func (t *trial) Bounded() context.Context { return t.Within(t.Patience()) }

// Trouble notes that the law does harm, or did.
func (t *trial) Trouble() {
	t.Troubled = true
	t.watch.Calls.Harm()
}

// lasting notes that the law does harm until end is called. The end of the test calls
// it too.
func (t *trial) lasting(end func()) func() {
	t.Trouble()
	end = sync.OnceFunc(end)
	t.Cleanup(end)
	return end
}
