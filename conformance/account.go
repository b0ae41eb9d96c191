package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// account collects the results of a run.
type account struct {
	name string
	laws int

	mu       sync.Mutex
	results  map[string]int      // laws, by result
	failed   []string            // with the reason
	missing  map[string][]string // laws that are not claimed, by what the backend lacks
	slow     string
	slowTook time.Duration
}

func (a *account) init(name string, laws int) {
	a.name, a.laws = name, laws
	a.results, a.missing = map[string]int{}, map[string][]string{}
}

func (a *account) add(l law, result, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.results[result]++
	switch result {
	case fail:
		a.failed = append(a.failed, fmt.Sprintf("  FAILED %s: %s\n%s", l.subtest(), l.promise, indented(why)))
	case notClaimed:
		a.missing[why] = append(a.missing[why], l.id)
	}
}

// indented shortens the text of a failure.
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

func (a *account) slowest(call string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow, a.slowTook = call, took
}

// print writes the account to the standard output, where go test shows it without -v
// too.
func (a *account) print(r *runner) {
	lease, why := r.leaseNow(), r.stopped()
	a.mu.Lock()
	defer a.mu.Unlock()
	var s strings.Builder
	fmt.Fprintf(&s, "conformance of %s:", a.name)
	ran := 0
	for _, r := range []struct{ result, said string }{{pass, "passed"}, {fail, "failed"}, {notClaimed, notClaimed}, {weaker, weaker}} {
		fmt.Fprintf(&s, " %d %s,", a.results[r.result], r.said)
		ran += a.results[r.result]
	}
	fmt.Fprintf(&s, " %d not run\n", a.laws-ran)
	const most = 20
	for i, f := range a.failed {
		if i == most {
			fmt.Fprintf(&s, "  and %d other laws failed\n", len(a.failed)-most)
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
		fmt.Fprintf(&s, "  The lease is too short for this machine and broker: laws may fail for it. Set Suite.Lease to %v or more.\n", (4 * a.slowTook).Round(500*time.Millisecond))
	}
	if why != "" {
		fmt.Fprintf(&s, "  STOPPED: %s\n", why)
	}
	fmt.Fprint(os.Stdout, s.String())
}

// giveUp ends the process, with an account, because a test cannot be ended.
func (r *runner) giveUp(w *watch, why string) {
	r.exit.Do(func() {
		text := w.reason()
		if text == "" {
			text = w.hangs(why)
			r.report(nil, w.law, fail, text)
		}
		r.stop(fmt.Sprintf("%s hangs: %s", w.law.subtest(), why))
		fmt.Fprintf(os.Stdout, "law: %s %s: %s\n%s", w.law.id, w.law.name, w.law.promise, text)
		r.account.print(r)
		os.Exit(1)
	})
}
