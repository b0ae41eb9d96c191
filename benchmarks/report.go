package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// A report holds the results of a suite.
type report struct {
	Go         string    `json:"go"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	Payload    int       `json:"payload"`
	Runs       int       `json:"runs"`
	Took       string    `json:"took"`
	Ended      time.Time `json:"ended"`
	Goals      []finding `json:"goals"`
	Results    []result  `json:"results"`
}

func newReport(p plan, results []result, took time.Duration) report {
	r := report{
		Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0), Payload: p.payload, Runs: p.runs,
		Took: took.Round(time.Second).String(), Ended: time.Now().UTC(), Results: results,
	}
	for _, x := range results {
		r.Runs = min(p.runs, max(x.Run, 1)) // the number of the last run, because there may have been no time for all runs of the plan
	}
	r.Goals = r.judge()
	return r
}

func readReport(file string) (r report, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

func (r report) writeJSON(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// markdown writes the goals, and then the tables.
func (r report) markdown(w io.Writer) {
	r.writeGoals(w)
	r.tables(w)
}

// tables writes the tables of all results.
func (r report) tables(w io.Writer) {
	for _, base := range []string{rawChannel, rawRedis, rawNATS} {
		r.table(w, base)
	}
	r.writeConditions(w)
	for _, t := range r.targets() {
		if t.live {
			fmt.Fprintln(w, "† keeps nothing for later consumers: one is attached in each cell, and what it costs is counted too.")
			return
		}
	}
}

func (r report) writeConditions(w io.Writer) {
	fmt.Fprintf(w, "%d B payload, %d interleaved runs in %s, GOMAXPROCS %d, %s.\n", r.Payload, r.Runs, r.Took, r.GOMAXPROCS, r.Go)
}

// targets returns the targets that have results, in the order of the variable targets.
func (r report) targets() []target {
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return !slices.ContainsFunc(r.Results, func(x result) bool { return x.Target == t.name })
	})
}

// cells returns the cells that have results, in the order in which they ran.
func (r report) cells() (cells []cell) {
	for _, x := range r.Results {
		if !slices.Contains(cells, x.Cell) {
			cells = append(cells, x.Cell)
		}
	}
	return cells
}

// table writes the table of the targets whose raw client is base.
func (r report) table(w io.Writer, base string) {
	of := slices.DeleteFunc(r.targets(), func(t target) bool { return t.base != base })
	if len(of) == 0 {
		return
	}
	fmt.Fprintf(w, "| cell | target | events/s, median | ratio to %s, median (quartiles) | allocs/event | B/event | CPU s/million, own + broker |\n", base)
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|")
	for _, c := range r.cells() {
		for _, t := range of {
			r.row(w, c, t)
		}
	}
	fmt.Fprintln(w)
}

func (r report) row(w io.Writer, c cell, t target) {
	if len(r.at(t.name, c)) == 0 {
		return
	}
	name := t.name
	if t.live {
		name += " †"
	}
	by, value := rate, short(r.median(t.name, c, rate))
	if c.op == opLatency {
		by = byLatency.of
		value = fmt.Sprintf("p50 %.2f ms, p99 %.1f", r.median(t.name, c, by), r.median(t.name, c, func(c cost) float64 { return c.P99 }))
	}
	ratio := "–"
	if s, ok := r.ratio(t.name, t.base, c, by); ok && t.kind != ceiling {
		ratio = fmt.Sprintf("**%s** (%s–%s)", short(s.median), short(s.low), short(s.high))
	}
	fmt.Fprintf(w, "| `%v` | %s | %s | %s | %.1f | %.0f | %.2f + %.2f |\n", c, name, value, ratio,
		r.median(t.name, c, func(c cost) float64 { return c.Allocs }),
		r.median(t.name, c, func(c cost) float64 { return c.Bytes }),
		r.median(t.name, c, func(c cost) float64 { return c.CPUSeconds }),
		r.median(t.name, c, func(c cost) float64 { return c.Broker }))
}

func (r report) median(name string, c cell, of func(cost) float64) float64 {
	var all []float64
	for _, c := range r.at(name, c) {
		all = append(all, of(c))
	}
	if len(all) == 0 {
		return 0
	}
	return spreadOf(all).median
}

// ratio compares two targets in the cell c. For each run, it divides the value of the
// target name by the value of the target to. It returns the spread of these ratios.
func (r report) ratio(name, to string, c cell, of func(cost) float64) (s spread, ok bool) {
	var ratios []float64
	base := r.at(to, c)
	for run, c := range r.at(name, c) {
		if b, ok := base[run]; ok && of(b) > 0 {
			ratios = append(ratios, of(c)/of(b))
		}
	}
	if len(ratios) == 0 {
		return s, false
	}
	return spreadOf(ratios), true
}

// at returns the costs of the cell c of the target name, by the number of the run.
func (r report) at(name string, c cell) map[int]cost {
	costs := map[int]cost{}
	for _, x := range r.Results {
		if x.Target == name && x.Cell == c {
			costs[x.Run] = x.cost
		}
	}
	return costs
}

// A spread is the median of some values, with the lower and the upper quartile.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{values[(n-1)/4], (values[(n-1)/2] + values[n/2]) / 2, values[n-1-(n-1)/4]}
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
