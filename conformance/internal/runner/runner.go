// Package runner runs laws, the basic laws first, and reports the results.
package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/conformance/internal/calls"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/report"
	"github.com/seed41896749/eventbus/conformance/internal/watch"
)

// basics are the laws that every other law builds on. They run first. If one fails, the
// others do not run. A law about Close is none, because a wrong error after Close lets the
// others run.
var basics = []string{"P12-publisher-order", "C08-at-most-max", "D17-wake-latency", "S06-cancel-fast"}

func basic(l law.Law) bool { return slices.Contains(basics, l.Subtest()) }

// Options mirrors Suite in package conformance, which documents the fields.
type Options struct {
	Name     string
	Harness  *law.Harness
	Lease    time.Duration
	Around   func(t *testing.T, f func(*testing.T))
	Parallel bool
	Weaker   map[string]string
	Grace    map[string]time.Duration
	Only     []string
	Engine   bool

	// Whole runs every law, even if basic laws fail. Tests of the suite itself set it.
	Whole bool
}

// Run tests laws and prints the account of the results.
func Run(t *testing.T, o Options, all []law.Law) {
	r := &runner{Options: o, fakeClock: o.Around != nil}
	if r.Around == nil {
		r.Around = func(t *testing.T, f func(*testing.T)) { f(t) }
	}
	r.run(t, r.chosen(t, all))
}

// A runner is one run of a suite.
type runner struct {
	Options
	fakeClock bool // the laws run in Around, so they may use the fake clock of a synctest bubble
	account   *report.Account

	mu      sync.Mutex
	slowest time.Duration // the longest time of a call so far
	hung    int           // number of laws that hang
	exit    sync.Once
	why     string // the reason why the run has stopped, or ""
}

// chosen returns the laws to run. It fails t if no law has an ID that is named in the
// options.
func (r *runner) chosen(t *testing.T, all []law.Law) []law.Law {
	for field, ids := range map[string][]string{
		"Weaker": slices.Collect(maps.Keys(r.Weaker)), "Grace": slices.Collect(maps.Keys(r.Grace)), "Only": r.Only,
	} {
		for _, id := range ids {
			if !slices.ContainsFunc(all, func(l law.Law) bool { return l.GoesBy(id) }) {
				t.Errorf("Suite.%s: there is no test %s", field, id)
			}
		}
	}
	if r.Only != nil {
		all = slices.DeleteFunc(all, func(l law.Law) bool { return !slices.ContainsFunc(r.Only, l.GoesBy) })
	}
	return all
}

func (r *runner) run(t *testing.T, all []law.Law) {
	r.account = report.New(r.Name, len(all), r.Only != nil)
	t.Cleanup(r.printAccount) // prints when the laws that run in parallel have ended
	first, rest := split(all)
	if !r.runBasics(t, first) && !r.Whole {
		r.stop("a basic test failed, and the others build on it: fix it first")
		return
	}
	if r.Parallel { // begins with the slowest laws, which are at the end
		slices.Reverse(rest)
	}
	for _, l := range rest {
		t.Run(l.Subtest(), func(t *testing.T) {
			if r.Parallel {
				t.Parallel()
			}
			r.test(t, l)
		})
	}
}

func split(all []law.Law) (first, rest []law.Law) {
	for _, l := range all {
		if basic(l) {
			first = append(first, l)
		} else {
			rest = append(rest, l)
		}
	}
	return first, rest
}

// runBasics reports whether the basic laws hold. Without Parallel and Whole it stops at the
// first law that fails.
func (r *runner) runBasics(t *testing.T, first []law.Law) bool {
	if !r.Parallel {
		for _, l := range first {
			if !t.Run(l.Subtest(), func(t *testing.T) { r.test(t, l) }) && !r.Whole {
				return false
			}
		}
		return !t.Failed()
	}
	var wg sync.WaitGroup
	for _, l := range first {
		wg.Go(func() { t.Run(l.Subtest(), func(t *testing.T) { r.test(t, l) }) })
	}
	wg.Wait()
	return !t.Failed()
}

// graceOf returns the Grace of a law: by how much its time limits are extended.
func (r *runner) graceOf(l law.Law) time.Duration { return cmp.Or(r.Grace[l.Subtest()], r.Grace[l.ID]) }

// stop makes the run skip all laws that have not begun.
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
func (r *runner) test(t *testing.T, l law.Law) {
	if why := cmp.Or(r.Weaker[l.Subtest()], r.Weaker[l.ID]); why != "" {
		r.account.Note(t, l, report.Weaker, why)
		t.Skipf("weaker: %s", why)
	}
	if why := r.stopped(); why != "" {
		t.Skipf("not run: %s", why)
	}
	if l.Engine && !r.Engine && r.Only == nil {
		r.account.Note(t, l, report.Engine, "")
		t.Skip("it tests the engine alone; see Suite.Engine")
	}
	var e *law.Env // the law's goroutine sets e; other code reads e only when this goroutine has ended
	w := r.newWatch(t, l)
	defer func() {
		switch slow := w.Calls.Slow(); {
		case t.Failed():
			if slow != nil && slow.Took > w.Lease/2 {
				t.Logf("The lease of %v is too short for this machine and broker: %v took %v. See Suite.Lease.", w.Lease, slow, slow.Took)
			}
			r.account.Note(t, l, report.Fail, w.Reason())
		case e == nil: // the function New of the suite skipped the test
			r.noteSlow(slow, l)
		case e.Lacks() != "":
			r.account.Note(t, l, report.NotClaimed, e.Lacks())
		default:
			r.noteSlow(slow, l)
			r.account.Note(t, l, report.Pass, e.Late())
		}
	}()
	w.Run(t, func(ctx context.Context, t *testing.T) {
		e = law.NewEnv(ctx, t, w, r.Harness, l)
		e.Try()
	})
	if !t.Failed() && e != nil && e.Lacks() != "" {
		t.Skipf("not claimed: %s", e.Lacks())
	}
}

// newWatch returns the watch over a law that begins now.
func (r *runner) newWatch(t *testing.T, l law.Law) *watch.Watch {
	return watch.New(t, watch.Law{
		Title: l.String(), Basic: basic(l), FakeClock: r.fakeClock, Lease: r.leaseNow(), Grace: r.graceOf(l),
		Around: r.Around,
		Hung:   func() { r.noteHung(l) },
		GiveUp: func(w *watch.Watch, why string) { r.giveUp(w, l, why) },
	})
}

// leaseNow returns the lease of a law that begins now. This is the suite's lease. If it is
// zero, leaseNow returns four times the slowest call so far, within fixed bounds.
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

// noteSlow remembers c if it is the slowest call of all laws so far. l is the law of c.
func (r *runner) noteSlow(c *calls.Call, l law.Law) {
	if c == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Took > r.slowest {
		r.slowest = c.Took
		r.account.Slowest(fmt.Sprintf("%v in %s", c, l.Subtest()), c.Took)
	}
}

// noteHung counts the laws that hang, except basic laws. At the third one it stops the run.
func (r *runner) noteHung(l law.Law) {
	if basic(l) {
		return
	}
	r.mu.Lock()
	r.hung++
	n := r.hung
	r.mu.Unlock()
	if n >= 3 && !r.Whole {
		r.stop("three tests hang")
	}
}

func (r *runner) printAccount() { r.account.Print(r.leaseNow(), r.stopped()) }

// giveUp prints the account and ends the process, because nothing else ends a hanging test.
func (r *runner) giveUp(w *watch.Watch, l law.Law, why string) {
	r.exit.Do(func() {
		text := w.Reason()
		if text == "" {
			text = w.Hangs(why, false)
			r.account.Note(nil, l, report.Fail, text)
		}
		r.stop(fmt.Sprintf("%s hangs: %s", l.Subtest(), why))
		fmt.Fprintf(os.Stdout, "conformance test %v\n%s", l, text)
		r.printAccount()
		os.Exit(1)
	})
}
