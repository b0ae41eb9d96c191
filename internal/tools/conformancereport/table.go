package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A table holds the tests with their outcomes, sorted.
type table struct {
	backends []string
	tests    []test
}

type test struct {
	id, name, promise string
	results           map[string]string // by backend: the outcome
	why               map[string]string // by backend: the reason of a result that is not a plain pass
}

func newTable(results []result) *table {
	t := &table{}
	for _, r := range results {
		if !slices.Contains(t.backends, r.Backend) {
			t.backends = append(t.backends, r.Backend)
		}
		i := slices.IndexFunc(t.tests, func(x test) bool { return x.id == r.ID && x.name == r.Name })
		if i < 0 {
			i = len(t.tests)
			t.tests = append(t.tests, test{r.ID, r.Name, r.Promise, map[string]string{}, map[string]string{}})
		}
		was := t.tests[i].results[r.Backend]
		if slices.Index(outcomes, r.Result) >= slices.Index(outcomes, was) {
			t.tests[i].results[r.Backend], t.tests[i].why[r.Backend] = r.Result, r.Why
		}
	}
	// Tests run in parallel and write their lines in any order, so the table is sorted.
	slices.Sort(t.backends)
	slices.SortFunc(t.tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.name, b.name))
	})
	return t
}

// of returns the outcome of a test on a backend, or "missing" if it did not run there.
func (x test) of(backend string) string { return cmp.Or(x.results[backend], "missing") }

// shown is like of, with the outcome engine as the page shows it.
func (x test) shown(backend string) string {
	if o := x.of(backend); o != engine {
		return o
	}
	return inTable
}

// complete returns an error if no backend ran a test of the engine.
func (t *table) complete() error {
	for _, x := range t.tests {
		if !slices.ContainsFunc(t.backends, func(b string) bool { return x.of(b) != engine }) {
			return fmt.Errorf("%s %s ran on no backend: it tests the engine alone, so run the suite of %s too", x.id, x.name, runsOn)
		}
	}
	return nil
}

// differs reports whether the backends have different outcomes of x.
func (t *table) differs(x test) bool {
	return slices.ContainsFunc(t.backends, func(b string) bool { return x.of(b) != x.of(t.backends[0]) })
}

func (t *table) count(outcome string) int {
	n := 0
	for _, b := range t.backends {
		n += t.countOf(b, outcome)
	}
	return n
}

func (t *table) countOf(backend, outcome string) int {
	n := 0
	for _, x := range t.tests {
		if x.of(backend) == outcome {
			n++
		}
	}
	return n
}

// summary counts the tests of a backend by outcome, in one line.
func (t *table) summary(backend string) string {
	s := fmt.Sprintf("%d tests: %d pass", len(t.tests), t.countOf(backend, "pass"))
	for _, o := range []struct{ outcome, shown string }{
		{"fail", "fail"}, {"weaker", "weaker"}, {"not claimed", "not claimed"}, {engine, "in memory only"}, {"missing", "missing"},
	} {
		if n := t.countOf(backend, o.outcome); n > 0 {
			s += fmt.Sprintf(", %d %s", n, o.shown)
		}
	}
	return s
}

// text returns the table for a terminal.
func (t *table) text() string {
	if len(t.tests) == 0 {
		return ""
	}
	width := 0
	for _, x := range t.tests {
		width = max(width, len(x.id)+1+len(x.name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", width, "test")
	for _, name := range t.backends {
		fmt.Fprintf(&b, "  %-11s", name)
	}
	b.WriteByte('\n')
	for _, x := range t.tests {
		fmt.Fprintf(&b, "%-*s", width, strings.TrimSpace(x.id+" "+x.name))
		for _, name := range t.backends {
			fmt.Fprintf(&b, "  %-11s", x.shown(name))
		}
		b.WriteByte('\n')
	}
	for _, name := range t.backends {
		fmt.Fprintf(&b, "%s: %s\n", name, t.summary(name))
	}
	return b.String()
}

// page returns the table for the documentation, with the summaries and reasons. If
// differing is set, the table has only the tests whose outcomes differ.
func (t *table) page(differing bool) string {
	var b strings.Builder
	for _, name := range t.backends {
		fmt.Fprintf(&b, "- **%s**, %s\n", name, t.summary(name))
	}
	b.WriteByte('\n')
	if t.count("not claimed") > 0 {
		b.WriteString("*not claimed*: the backend does not offer the optional interface or the limit that the test needs.\n\n")
	}
	if t.count(engine) > 0 {
		b.WriteString("*memory*: the test is about the engine alone, so no backend can change its outcome. It ran on `" +
			runsOn + "` instead.\n\n")
	}
	b.WriteString(t.reasons())
	tests := t.tests
	if differing {
		tests = slices.DeleteFunc(slices.Clone(tests), func(x test) bool { return !t.differs(x) })
		if len(tests) == 0 {
			b.WriteString("Every test has the same outcome on all of them.\n")
			return b.String()
		}
	}
	b.WriteString("| test | promise |")
	for _, name := range t.backends {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n|--|--|" + strings.Repeat("--|", len(t.backends)) + "\n")
	for _, x := range tests {
		fmt.Fprintf(&b, "| %s | %s |", strings.TrimSpace(x.id+" "+x.name), cell(x.promise))
		for _, name := range t.backends {
			fmt.Fprintf(&b, " %s |", x.shown(name))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// reasons lists the tests that did not simply pass or fail, each with the reason.
func (t *table) reasons() string {
	var b strings.Builder
	for _, name := range t.backends {
		for _, x := range t.tests {
			is := "is weaker"
			switch {
			case x.of(name) == "pass" && x.why[name] != "":
				is = "passes"
			case x.of(name) != "weaker":
				continue
			}
			fmt.Fprintf(&b, "- %s on %s %s: %s\n", strings.TrimSpace(x.id+" "+x.name), name, is, x.why[name])
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// cell escapes s for a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
