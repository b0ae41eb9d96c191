package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A plan holds the settings of one run of the command.
type plan struct {
	targets []target
	cells   []cell
	runs    int           // number of runs that count; a first run, which warms up, does not count
	budget  time.Duration // approximate duration of one trial
	least   int           // fewest events in one trial
	most    int           // most events in one trial
	payload int           // bytes

	latency time.Duration // how long a lat cell publishes
	within  time.Duration // bound of the whole duration: run 2 and later begin only if they should end within it; 0: no bound
	curves  bool

	list                     bool
	jsonFile                 string
	from                     string // read results from this file instead of running
	doc                      string
	svg                      string
	cpuProfile, allocProfile string
}

const (
	defaultCells = "pub/1,pub/32,batch/1,con/1,con/16,con/256,e2e/16,con/16@16K,lat/500"
	quickCells   = "pub/1,pub/32,batch/1,con/1,con/16,e2e/16"
	mostEvents   = 200_000   // most events in one trial; every target can hold this number
	leastEvents  = 1000      // fewest events in one trial, without -quick
	mostBytes    = 192 << 20 // most bytes in one trial, because a stream on NATS holds 256 MiB by default
)

func parsePlan(args []string, out io.Writer) (plan, error) {
	var p plan
	var names, cells string
	var quick, curves bool
	f := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&names, "targets", "all", "comma-separated targets; see -list")
	f.StringVar(&cells, "cells", defaultCells, "comma-separated cells")
	f.IntVar(&p.runs, "runs", 10, "interleaved runs, after one that warms up")
	f.DurationVar(&p.budget, "budget", 200*time.Millisecond, "aim for this long per trial: the number of events follows the rate")
	f.IntVar(&p.most, "n", mostEvents, "at most this many events per trial")
	f.IntVar(&p.payload, "payload", 256, "bytes of payload")
	f.BoolVar(&quick, "quick", false, "runs of 50 ms per trial, of the smaller cells, as many as fit into 50 s, 7 at most")
	f.BoolVar(&curves, "curves", false, "how cost grows: 3 runs of other cells, without peers")
	f.StringVar(&p.from, "from", "", "run nothing, take the results from this file")
	f.StringVar(&p.doc, "doc", "", "put the tables into this file, between the comments that mark their place")
	f.StringVar(&p.svg, "svg", "", "draw the ratios to this file")
	f.BoolVar(&p.list, "list", false, "list the targets")
	f.StringVar(&p.jsonFile, "json", "", "write every single result to this file")
	f.StringVar(&p.cpuProfile, "cpuprofile", "", "write a CPU profile; use it with one target and one cell")
	f.StringVar(&p.allocProfile, "allocprofile", "", "write a profile of every allocation, likewise; rates mean nothing then")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	p.latency, p.least = time.Second, leastEvents
	if quick {
		p.latency, p.least = 200*time.Millisecond, leastEvents/2
		if !given(f, "runs") {
			p.runs, p.within = 7, 50*time.Second
		}
		if !given(f, "budget") {
			p.budget = 50 * time.Millisecond
		}
		if !given(f, "cells") {
			cells = quickCells
		}
	}
	if p.curves = curves; curves {
		if !given(f, "targets") {
			names = curveTargets()
		}
		if !given(f, "cells") {
			cells = curveCells()
		}
		if !given(f, "runs") {
			p.runs = 3
		}
	}
	if p.runs < 1 || p.budget <= 0 || p.payload < leastPayload || p.most < leastEvents || p.most > mostEvents {
		return p, fmt.Errorf("-runs and -budget must be positive, -payload at least %d, -n from %d to %d", leastPayload, leastEvents, mostEvents)
	}
	var err, err2 error
	p.targets, err = chosenTargets(names)
	p.cells, err2 = parseCells(cells)
	return p, errors.Join(err, err2)
}

// given reports whether a flag was set.
func given(f *flag.FlagSet, name string) (found bool) {
	f.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// events returns how many events a trial of the cell c has. payload is their size. rate is
// the events per second of the cell's previous trial.
func (p plan) events(c cell, payload int, rate float64) int {
	switch c.op {
	case opLatency:
		return max(int(float64(c.n)*p.latency.Seconds()), 10)
	case opBacklog:
		return c.n
	case opMemory:
		return c.n << 20 / payload
	}
	budget := p.budget
	if c.op == opConsume && rate > 50_000 {
		budget = max(2*budget, 120*time.Millisecond) // a longer trial, so that events prefetched before the measured part matter little
	}
	n := min(max(int(rate*budget.Seconds()), p.least), p.most)
	return max(min(n, mostBytes/payload), batchSize)
}

// chosenTargets returns the targets with these names, in the order of the variable targets.
func chosenTargets(names string) ([]target, error) {
	if names == "all" {
		return targets, nil
	}
	chosen := strings.Split(names, ",")
	for _, name := range chosen {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.name == name }) {
			return nil, fmt.Errorf("no target %q; see -list", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return !slices.Contains(chosen, t.name) }), nil
}
