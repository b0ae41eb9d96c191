// Command conformancereport turns the results of the conformance suite into a table, one row
// for each test and one column for each backend. It prints the table, and can write it as a
// page of the documentation.
//
//	conformancereport [-backends LIST] [-out PAGE] [-differing] RESULTS
//
// RESULTS is the file that EVENTBUS_CONFORMANCE_OUT names while tests run. Package
// conformance appends one JSON object per test and backend to it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// A result is the outcome of one test on one backend.
type result struct {
	Backend string `json:"backend"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Promise string `json:"promise"`
	Result  string `json:"result"`
	Why     string `json:"why"`
	Some    bool   `json:"some"` // the suite ran a selection of its tests
}

// outcomes lists the outcomes of a test. If a test has several results on a backend, the one
// that is last in this list counts. One failure is never hidden by a later pass.
var outcomes = []string{engine, "not claimed", "weaker", "pass", "fail"}

// engine is the outcome of a test that did not run on a backend, because its verdict depends
// on the engine alone. The page shows where it ran instead.
const (
	engine  = "engine"
	runsOn  = "inmemory"
	inTable = "memory" // how the page shows the outcome engine
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "write the page to this file")
	flag.StringVar(&o.by, "by", "make conformance-report", "the command that the page names as its author")
	flag.BoolVar(&o.differing, "differing", false, "leave out the tests whose outcome is the same on all backends")
	backends := flag.String("backends", "", "the backends of the page, separated by commas; each must have results (default: all)")
	flag.Parse()
	if *backends != "" {
		o.backends = strings.Split(*backends, ",")
	}
	if err := run(flag.Arg(0), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformancereport:", err)
		os.Exit(1)
	}
}

type options struct {
	out, by   string
	differing bool
	backends  []string // nil: all
}

// run reports the results of the file in. It returns an error if a test failed or if the
// results are incomplete, but writes the page even then.
func run(in string, o options, stdout io.Writer) error {
	whole, some, err := load(in, o.backends)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	t, extra := newTable(whole), newTable(some)
	fmt.Fprint(stdout, t.text(), extra.text())
	if o.out != "" {
		page := "# Conformance tests by backend\n\nWritten by `" + o.by + "`; do not edit.\n\n" + t.page(o.differing)
		if len(some) > 0 {
			page += "\n## Selected tests during a failover\n\n" + extra.page(o.differing)
		}
		if err := os.WriteFile(o.out, []byte(page), 0o644); err != nil {
			return err
		}
	}
	if n := t.count("fail") + extra.count("fail"); n > 0 {
		return fmt.Errorf("%d failed", n)
	}
	for _, b := range o.backends {
		if !slices.Contains(t.backends, b) && !slices.Contains(extra.backends, b) {
			return fmt.Errorf("no results of %s: did its suite run?", b)
		}
	}
	if !o.differing {
		return t.complete()
	}
	return nil
}

// load returns the results of the backends in the file: those of whole runs of the suite,
// and those of runs with a selection of the tests.
func load(in string, backends []string) (whole, some []result, err error) {
	f, err := os.Open(in)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	results, err := read(f)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range results {
		switch {
		case backends != nil && !slices.Contains(backends, r.Backend):
		case r.Some:
			some = append(some, r)
		default:
			whole = append(whole, r)
		}
	}
	if len(whole)+len(some) == 0 {
		return nil, nil, errors.New("no results: did the suite run?")
	}
	return whole, some, nil
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
			return nil, fmt.Errorf("test %s %s on %s: unknown result %q", one.ID, one.Name, one.Backend, one.Result)
		}
		all = append(all, one)
	}
}
