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

// A trial holds the verdict, time limits and cleanups of one law's test.
type trial struct {
	*testing.T
	ctx       context.Context // done when the law ends, or when the watch finds that the law hangs
	cancel    context.CancelFunc
	watch     *watch.Watch
	Law       Law
	Lease     time.Duration
	Grace     time.Duration // added to every upper bound on time; see conformance.Suite
	Troubled  bool          // the law harmed the broker or has Grace, so calls may fail temporarily
	unclaimed string        // the name of the missing Need, or the error of a verb that is not supported; "": none

	cleanups struct {
		sync.Mutex
		all []func()
	}
}

// Tick is subtracted from each lower bound on time, because some brokers round to whole
// milliseconds.
const Tick = 2 * time.Millisecond

// Hitch is the longest delay that a busy machine should cause.
const Hitch = 400 * time.Millisecond

// Pause is how long a test waits before it repeats a failed call.
const Pause = 20 * time.Millisecond

// Notice is how long a driver may take to detect that its broker does not answer.
const Notice = 5 * time.Second

func newTrial(ctx context.Context, t *testing.T, w *watch.Watch, l Law) *trial {
	ctx, cancel := context.WithCancel(ctx)
	return &trial{T: t, ctx: ctx, cancel: cancel, watch: w, Law: l, Lease: w.Lease, Grace: w.Grace, Troubled: w.Grace > 0}
}

// Context returns a context that is done before the cleanups of the law run.
func (t *trial) Context() context.Context { return t.ctx }

// Cleanup registers f for the end of the law. f runs on the law's goroutine, so that the
// watch notices if f hangs.
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

// Lacks returns the name of the [Need] of the law that the backend does not have, or the
// error of a call that the backend does not support. It returns "" if nothing is missing.
func (t *trial) Lacks() string { return t.unclaimed }

// Late returns a sentence about the law's Grace for the report, or "" without Grace.
func (t *trial) Late() string {
	if t.Grace == 0 {
		return ""
	}
	return fmt.Sprintf("up to %v later than promised still counts as in time", t.Grace)
}

// Failf fails and ends the test. The text should have the result and the expected result.
func (t *trial) Failf(format string, args ...any) {
	t.Helper()
	t.watch.Fails(t.T, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Errorf fails the test but does not end it. Goroutines other than the test's use it in
// place of Failf.
func (t *trial) Errorf(format string, args ...any) {
	t.watch.Fails(t.T, fmt.Sprintf(format, args...))
}

// Must fails the test if err is not nil.
func (t *trial) Must(err error) {
	t.Helper()
	if err != nil {
		t.Failf("got error %v, want none", err)
	}
}

// Verb fails the test if an optional verb returned an error. But if err matches
// errors.ErrUnsupported, the law ends as not claimed.
func (t *trial) Verb(err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.unclaimed = err.Error()
		runtime.Goexit()
	}
	t.Must(err)
}

// Is fails the test if the error got does not match the error want.
func (t *trial) Is(what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Failf("%s: got error %v, want one that matches %q", what, got, want)
	}
}

// Persist calls f until it returns no error. It repeats f only if the broker was harmed and
// the error is [Passing]; any other error fails the test.
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

// Soon is how late a due message may be received. It is the sum of half a second, which the
// contract allows, half a lease for the slowest call to the backend, and Grace.
func (t *trial) Soon() time.Duration { return t.Lease/2 + 500*time.Millisecond + t.Grace }

// Patience is how long a test waits for something that must happen.
func (t *trial) Patience() time.Duration { return t.watch.Patience() }

// NotBefore expects that at least d has passed since start.
func (t *trial) NotBefore(start time.Time, d time.Duration, what string) {
	t.Helper()
	if got := time.Since(start); got < d-Tick {
		t.Failf("%s after %v, want not before %v", what, got, d)
	}
}

// By expects that at most d and [trial.Soon] have passed since start.
func (t *trial) By(start time.Time, d time.Duration, what string) {
	t.Helper()
	if got := time.Since(start); got > d+t.Soon() {
		t.Failf("%s after %v, want by %v, or %v at the latest", what, got, d, d+t.Soon())
	}
}

// Mostly expects that the median of took is at most limit. It uses the median, because a
// busy machine may delay some of the measured calls.
func (t *trial) Mostly(took []time.Duration, limit time.Duration, what string) {
	t.Helper()
	limit += t.Grace
	slices.Sort(took)
	if median := took[len(took)/2]; median > limit {
		t.Failf("%s after %v, want mostly within %v", what, took, limit)
	}
}

// Within returns a context that ends after d.
func (t *trial) Within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Bounded returns a context that ends after Patience, for calls that should return before.
func (t *trial) Bounded() context.Context { return t.Within(t.Patience()) }

// Trouble records that the law harms the broker. From then on, calls may fail and may be
// slow.
func (t *trial) Trouble() {
	t.Troubled = true
	t.watch.Calls.Harm()
}

// lasting calls Trouble. It returns a function that calls end, but only the first time. The
// cleanup of the law calls this function too, so that the harm ends with the law.
func (t *trial) lasting(end func()) func() {
	t.Trouble()
	end = sync.OnceFunc(end)
	t.Cleanup(end)
	return end
}
