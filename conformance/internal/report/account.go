// Package report collects the results of laws. It prints an account, which is a short
// summary of the results. For make conformance it also appends each result to a file.
package report

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// An Account collects the results of the laws of a run.
type Account struct {
	backend string
	laws    int
	some    bool // the run leaves some laws out

	mu       sync.Mutex
	results  map[Result]int      // number of laws, by result
	failed   []string            // failed laws, each with the reason
	missing  map[string][]string // IDs of the laws that are not claimed, by the claim that is missing
	slow     string
	slowTook time.Duration
}

// New returns the account of a run. laws is the number of laws. some reports whether the
// run leaves laws out.
func New(backend string, laws int, some bool) *Account {
	return &Account{backend: backend, laws: laws, some: some, results: map[Result]int{}, missing: map[string][]string{}}
}

// add adds the result r of a law. why is the text of the failure; or, if the law did not
// run, the verb that the backend lacks; or the reason why the law checks less.
func (a *Account) add(l law.Law, r Result, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.results[r]++
	switch r {
	case Fail:
		a.failed = append(a.failed, fmt.Sprintf("  FAILED %s: %s\n%s", l.Subtest(), l.Promise, indented(why)))
	case NotClaimed:
		a.missing[why] = append(a.missing[why], l.ID)
	}
}

// indented shortens the text of a failure to three lines, and indents them.
func indented(text string) string {
	if text == "" {
		return ""
	}
	const most = 3
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], "…")
	}
	for i, line := range lines {
		lines[i] = fmt.Sprintf("    %.200s", line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Slowest records a call that is slower than all calls before it.
func (a *Account) Slowest(call string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow, a.slowTook = call, took
}

// Print writes the account to the standard output, because go test shows this output even
// without -v. stopped says why the run stopped early, or is empty.
func (a *Account) Print(lease time.Duration, stopped string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var s strings.Builder
	fmt.Fprintf(&s, "conformance of %s:", a.backend)
	ran := 0
	for _, r := range []struct {
		result Result
		said   string
	}{{Pass, "passed"}, {Fail, "failed"}, {NotClaimed, "not claimed"}, {Weaker, "weaker"}, {Engine, "of the engine alone"}} {
		fmt.Fprintf(&s, " %d %s,", a.results[r.result], r.said)
		ran += a.results[r.result]
	}
	fmt.Fprintf(&s, " %d not run\n", a.laws-ran)
	const most = 20
	for i, f := range a.failed {
		if i == most {
			fmt.Fprintf(&s, "  and %d other tests failed\n", len(a.failed)-most)
			break
		}
		s.WriteString(f)
	}
	for _, what := range slices.Sorted(maps.Keys(a.missing)) {
		slices.Sort(a.missing[what])
		fmt.Fprintf(&s, "  not claimed: %s: %s\n", what, strings.Join(slices.Compact(a.missing[what]), " "))
	}
	if a.slow != "" {
		fmt.Fprintf(&s, "  the slowest call took %v, the lease is %v: %s\n", a.slowTook.Round(100*time.Microsecond), lease, a.slow)
	}
	if a.slow != "" && a.slowTook > lease/2 {
		fmt.Fprintf(&s, "  The lease is too short for this machine and broker: tests may fail because of it. Set Suite.Lease to %v or more.\n", (4 * a.slowTook).Round(500*time.Millisecond))
	}
	if stopped != "" {
		fmt.Fprintf(&s, "  STOPPED: %s\n", stopped)
	}
	fmt.Fprint(os.Stdout, s.String())
}
