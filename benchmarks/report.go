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

// A report is what a suite has found.
type report struct {
	Go         string    `json:"go"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	Payload    int       `json:"payload"`
	Runs       int       `json:"runs"`
	Took       string    `json:"took"`
	Ended      time.Time `json:"ended"`
	Results    []result  `json:"results"`

	plan plan
}

func newReport(p plan, results []result, took time.Duration) report {
	return report{
		Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0), Payload: p.payload, Runs: p.runs,
		Took: took.Round(time.Second).String(), Ended: time.Now().UTC(), Results: results, plan: p,
	}
}

func (r report) writeJSON(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// markdown writes the table.
func (r report) markdown(w io.Writer) {
	for _, base := range []string{rawChannel, rawRedis} {
		r.table(w, base)
	}
	fmt.Fprintf(w, "%d B payload, %d interleaved runs in %s, GOMAXPROCS %d, %s.\n", r.Payload, r.Runs, r.Took, r.GOMAXPROCS, r.Go)
	for _, t := range r.plan.targets {
		if t.live {
			fmt.Fprintln(w, "† keeps nothing for later consumers: one is attached in each cell, and what it costs is counted too.")
			return
		}
	}
}

// table writes what refers to one ceiling.
func (r report) table(w io.Writer, base string) {
	of := slices.DeleteFunc(slices.Clone(r.plan.targets), func(t target) bool { return t.base != base })
	if len(of) == 0 {
		return
	}
	fmt.Fprintf(w, "| cell | target | events/s, median | ratio to %s, min / **median** / max | allocs/event | B/event | CPU s/million, own + broker |\n", base)
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|")
	for _, c := range r.plan.cells {
		for _, t := range of {
			r.row(w, c, t)
		}
	}
	fmt.Fprintln(w)
}

func (r report) row(w io.Writer, c cell, t target) {
	of, base := r.at(t.name, c), r.at(t.base, c)
	if len(of) == 0 {
		return
	}
	name := t.name
	if t.live {
		name += " †"
	}
	ratio := "–"
	if ratios := paired(of, base); len(ratios) > 0 {
		s := spreadOf(ratios)
		ratio = fmt.Sprintf("%.2g / **%.2g** / %.2g", s.min, s.median, s.max)
	}
	median := func(f func(cost) float64) float64 {
		var all []float64
		for _, c := range of {
			all = append(all, f(c))
		}
		return spreadOf(all).median
	}
	fmt.Fprintf(w, "| %v | %s | %s | %s | %.1f | %.0f | %.2f + %.2f |\n", c, name,
		short(median(func(c cost) float64 { return c.PerSecond })), ratio,
		median(func(c cost) float64 { return c.Allocs }),
		median(func(c cost) float64 { return c.Bytes }),
		median(func(c cost) float64 { return c.CPUSeconds }),
		median(func(c cost) float64 { return c.Broker }))
}

// at returns the costs of one cell of one target, by run.
func (r report) at(name string, c cell) map[int]cost {
	costs := map[int]cost{}
	for _, x := range r.Results {
		if x.Target == name && x.Cell == c {
			costs[x.Run] = x.cost
		}
	}
	return costs
}

// paired returns the ratios of the rates of the same run.
func paired(of, base map[int]cost) (ratios []float64) {
	for run, c := range of {
		if b, ok := base[run]; ok {
			ratios = append(ratios, c.PerSecond/b.PerSecond)
		}
	}
	return ratios
}

type spread struct{ min, median, max float64 }

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]}
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
