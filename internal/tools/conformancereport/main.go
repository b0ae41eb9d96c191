// Command conformancereport prints the results of the conformance suite as a table, law by
// backend. It can also write a page for the documentation.
//
// Its input is a file of JSON lines, one for each law and backend. Package conformance
// appends them to the file that EVENTBUS_CONFORMANCE_OUT names.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A result is the outcome of one law on one backend.
type result struct {
	Backend string `json:"backend"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Promise string `json:"promise"`
	Result  string `json:"result"`
	Why     string `json:"why"`
	Some    bool   `json:"some"` // the run of the suite had some of the laws only
}

// outcomes lists the outcomes of a law. If a law has several results on a backend, the
// result counts whose outcome is last in this list, so "fail" in any run counts.
var outcomes = []string{"not claimed", "weaker", "pass", "fail"}

// A table has the laws, sorted, with their outcomes.
type table struct {
	backends []string
	laws     []law
}

type law struct {
	id, name, promise string
	results           map[string]string // by backend: the outcome
	why               map[string]string // by backend: the reason of a result that is not a plain pass
}

func main() {
	out := flag.String("out", "", "write the page to this file")
	by := flag.String("by", "make conformance", "what the page says it is written by")
	differing := flag.Bool("differing", false, "the page has only the laws whose outcomes differ")
	flag.Parse()
	if err := run(flag.Arg(0), *out, *by, *differing, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformancereport:", err)
		os.Exit(1)
	}
}

// run reports the results of the file in. It then returns an error if a law failed.
func run(in, out, by string, differing bool, stdout io.Writer) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	if len(results) == 0 {
		return fmt.Errorf("%s: no results: did the suite run?", in)
	}
	var whole, some []result
	for _, r := range results {
		if r.Some {
			some = append(some, r)
		} else {
			whole = append(whole, r)
		}
	}
	t, extra := newTable(whole), newTable(some)
	fmt.Fprint(stdout, t.text(), extra.text())
	if out != "" {
		page := "# Law by backend\n\nWritten by `" + by + "`; not by hand.\n\n" + t.page(differing)
		if len(some) > 0 {
			page += "\n## Some laws, with trouble besides\n\n" + extra.page(differing)
		}
		if err := os.WriteFile(out, []byte(page), 0o644); err != nil {
			return err
		}
	}
	if n := t.count("fail") + extra.count("fail"); n > 0 {
		return fmt.Errorf("%d failed", n)
	}
	return nil
}

func read(r io.Reader) ([]result, error) {
	var all []result
	for d := json.NewDecoder(r); ; {
		var one result
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case !slices.Contains(outcomes, one.Result):
			return nil, fmt.Errorf("law %s %s on %s: unknown result %q", one.ID, one.Name, one.Backend, one.Result)
		}
		all = append(all, one)
	}
}

func newTable(results []result) *table {
	t := &table{}
	for _, r := range results {
		if !slices.Contains(t.backends, r.Backend) {
			t.backends = append(t.backends, r.Backend)
		}
		i := slices.IndexFunc(t.laws, func(l law) bool { return l.id == r.ID && l.name == r.Name })
		if i < 0 {
			i = len(t.laws)
			t.laws = append(t.laws, law{r.ID, r.Name, r.Promise, map[string]string{}, map[string]string{}})
		}
		was := t.laws[i].results[r.Backend]
		if slices.Index(outcomes, r.Result) >= slices.Index(outcomes, was) {
			t.laws[i].results[r.Backend], t.laws[i].why[r.Backend] = r.Result, r.Why
		}
	}
	// The table is sorted, because laws run in parallel and write their lines in any order.
	slices.Sort(t.backends)
	slices.SortFunc(t.laws, func(a, b law) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.name, b.name))
	})
	return t
}

// of returns the outcome of a law on a backend, or "missing" if it did not run there.
func (l law) of(backend string) string { return cmp.Or(l.results[backend], "missing") }

// differs reports whether the backends have different outcomes of l.
func (t *table) differs(l law) bool {
	return slices.ContainsFunc(t.backends, func(b string) bool { return l.of(b) != l.of(t.backends[0]) })
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
	for _, l := range t.laws {
		if l.of(backend) == outcome {
			n++
		}
	}
	return n
}

// summary counts the laws of a backend by outcome, in one line.
func (t *table) summary(backend string) string {
	s := fmt.Sprintf("%d laws: %d pass", len(t.laws), t.countOf(backend, "pass"))
	for _, o := range []string{"fail", "weaker", "not claimed", "missing"} {
		if n := t.countOf(backend, o); n > 0 {
			s += fmt.Sprintf(", %d %s", n, o)
		}
	}
	return s
}

// text returns the table for a terminal.
func (t *table) text() string {
	if len(t.laws) == 0 {
		return ""
	}
	width := 0
	for _, l := range t.laws {
		width = max(width, len(l.id)+1+len(l.name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", width, "law")
	for _, name := range t.backends {
		fmt.Fprintf(&b, "  %-11s", name)
	}
	b.WriteByte('\n')
	for _, l := range t.laws {
		fmt.Fprintf(&b, "%-*s", width, strings.TrimSpace(l.id+" "+l.name))
		for _, name := range t.backends {
			fmt.Fprintf(&b, "  %-11s", l.of(name))
		}
		b.WriteByte('\n')
	}
	for _, name := range t.backends {
		fmt.Fprintf(&b, "%s: %s\n", name, t.summary(name))
	}
	return b.String()
}

// page returns the table for the documentation, with the summaries and reasons. If
// differing is set, the table has only the laws whose outcomes differ.
func (t *table) page(differing bool) string {
	var b strings.Builder
	for _, name := range t.backends {
		fmt.Fprintf(&b, "- **%s**, %s\n", name, t.summary(name))
	}
	b.WriteByte('\n')
	if t.count("not claimed") > 0 {
		b.WriteString("Not claimed: the backend does not offer the verb or fact that the law is about.\n\n")
	}
	reserved := false
	for _, name := range t.backends {
		for _, l := range t.laws {
			is := "is weaker"
			switch {
			case l.of(name) == "pass" && l.why[name] != "":
				is = "passes"
			case l.of(name) != "weaker":
				continue
			}
			fmt.Fprintf(&b, "- %s on %s %s: %s\n", strings.TrimSpace(l.id+" "+l.name), name, is, l.why[name])
			reserved = true
		}
	}
	if reserved {
		b.WriteByte('\n')
	}
	laws := t.laws
	if differing {
		laws = slices.DeleteFunc(slices.Clone(laws), func(l law) bool { return !t.differs(l) })
		if len(laws) == 0 {
			b.WriteString("Each law has the same outcome on all of them.\n")
			return b.String()
		}
	}
	b.WriteString("| law | promise |")
	for _, name := range t.backends {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n|--|--|" + strings.Repeat("--|", len(t.backends)) + "\n")
	for _, l := range laws {
		fmt.Fprintf(&b, "| %s | %s |", strings.TrimSpace(l.id+" "+l.name), cell(l.promise))
		for _, name := range t.backends {
			fmt.Fprintf(&b, " %s |", l.of(name))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cell escapes s for a cell of a Markdown table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
