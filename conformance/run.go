package conformance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// basics are the laws without which no other can be tested. They run first; if one
// fails, the others do not run.
var basics = []string{"P12-publisher-order", "C08-at-most-max", "S06-cancel-fast", "C46-closed-source", "S04-close-idempotent"}

func (l law) basic() bool { return slices.Contains(basics, l.subtest()) }

// Run tests every law, the basic ones first, and prints a short account of the
// results. A law that hangs fails, with the calls that have not returned. Run stops
// early if a basic law fails or if three laws hang.
func Run(t *testing.T, s Suite) { newRunner(s).run(t) }

func newRunner(s Suite) *runner {
	r := &runner{Suite: s, fakeClock: s.Around != nil}
	if r.Around == nil {
		r.Around = func(t *testing.T, f func(*testing.T)) { f(t) }
	}
	return r
}

// A runner is one run of a suite.
type runner struct {
	Suite
	fakeClock bool // laws may run on another clock than that of the machine
	whole     bool // basic laws that fail do not stop the run: the suite's own tests
	account   account

	mu      sync.Mutex
	slowest time.Duration // of the calls so far
	hung    int           // laws
	exit    sync.Once
	why     string // the run has stopped
}

// chosen returns the laws to run.
func (r *runner) chosen(t *testing.T) []law {
	all := laws()
	for field, ids := range map[string][]string{
		"Weaker": slices.Collect(maps.Keys(r.Weaker)), "Grace": slices.Collect(maps.Keys(r.Grace)), "Only": r.Only,
	} {
		for _, id := range ids {
			if !slices.ContainsFunc(all, func(l law) bool { return l.goesBy(id) }) {
				t.Errorf("Suite.%s: there is no law %s", field, id)
			}
		}
	}
	if r.Only != nil {
		all = slices.DeleteFunc(all, func(l law) bool { return !slices.ContainsFunc(r.Only, l.goesBy) })
	}
	return all
}

func (r *runner) run(t *testing.T) {
	all := r.chosen(t)
	r.account.init(r.Name, len(all))
	t.Cleanup(func() { r.account.print(r) }) // after the laws that run in parallel
	basic, rest := split(all)
	if !r.runBasics(t, basic) && !r.whole {
		r.stop("a basic law failed, and the other laws build on it: mend it first")
		return
	}
	if r.Parallel { // those that take longest are at the end
		slices.Reverse(rest)
	}
	for _, l := range rest {
		t.Run(l.subtest(), func(t *testing.T) {
			if r.Parallel {
				t.Parallel()
			}
			r.test(t, l)
		})
	}
}

func split(all []law) (basic, rest []law) {
	for _, l := range all {
		if l.basic() {
			basic = append(basic, l)
		} else {
			rest = append(rest, l)
		}
	}
	return basic, rest
}

// runBasics reports whether the basic laws hold. It ends before other laws begin.
func (r *runner) runBasics(t *testing.T, basic []law) bool {
	if !r.Parallel {
		for _, l := range basic {
			if !t.Run(l.subtest(), func(t *testing.T) { r.test(t, l) }) && !r.whole {
				return false
			}
		}
		return !t.Failed()
	}
	var wg sync.WaitGroup
	for _, l := range basic {
		wg.Go(func() { t.Run(l.subtest(), func(t *testing.T) { r.test(t, l) }) })
	}
	wg.Wait()
	return !t.Failed()
}

// graceOf returns how much later things may be in a law.
func (r *runner) graceOf(l law) time.Duration { return cmp.Or(r.Grace[l.subtest()], r.Grace[l.id]) }

// stop lets no further law begin.
func (r *runner) stop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = cmp.Or(r.why, why)
}

func (r *runner) stopped() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// test tests one law and reports the result.
func (r *runner) test(t *testing.T, l law) {
	if why := cmp.Or(r.Weaker[l.subtest()], r.Weaker[l.id]); why != "" {
		r.report(t, l, weaker, why)
		t.Skipf("weaker: %s", why)
	}
	if why := r.stopped(); why != "" {
		t.Skipf("not run: %s", why)
	}
	var e *driverEnv // of the law's goroutine, until that has ended
	w := newWatch(t, r, l)
	defer func() {
		switch slow := w.calls.slow(); {
		case t.Failed():
			if slow != nil && slow.took > w.lease/2 {
				t.Logf("The lease of %v is too short for this machine and broker: %v took %v. See Suite.Lease.", w.lease, slow, slow.took)
			}
			r.report(t, l, fail, w.reason())
		case e == nil: // New skipped the test
			r.noteSlow(slow, l)
		case e.unclaimed != "":
			r.report(t, l, notClaimed, e.unclaimed)
		default:
			r.noteSlow(slow, l)
			r.report(t, l, pass, e.late())
		}
	}()
	w.around(t, func(ctx context.Context, t *testing.T) {
		e = newDriverEnv(ctx, t, w)
		defer e.cleanUp()
		if e.unclaimed = e.missing(); e.unclaimed == "" {
			l.run(e)
		}
	})
	if !t.Failed() && e != nil && e.unclaimed != "" {
		t.Skipf("not claimed: %s", e.unclaimed)
	}
}

// leaseNow returns the lease of a law that begins now: that of the suite, or four
// times the slowest call so far.
func (r *runner) leaseNow() time.Duration {
	if r.Lease > 0 {
		return r.Lease
	}
	const step = 500 * time.Millisecond
	least := time.Second
	if r.Parallel {
		least = 2 * time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(max(least, (4*r.slowest).Round(step)), 10*time.Second)
}

// noteSlow remembers the slowest call of a law.
func (r *runner) noteSlow(c *call, l law) {
	if c == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.took > r.slowest {
		r.slowest = c.took
		r.account.slowest(fmt.Sprintf("%v in %s", c, l.subtest()), c.took)
	}
}

// noteHung counts the laws that hang, beside the basic ones.
func (r *runner) noteHung(l law) {
	if l.basic() {
		return
	}
	r.mu.Lock()
	r.hung++
	n := r.hung
	r.mu.Unlock()
	if n >= 3 && !r.whole {
		r.stop("three laws hang")
	}
}
