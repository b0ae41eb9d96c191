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

// A plan is what one run of the command is to measure.
type plan struct {
	targets []target
	cells   []cell
	runs    int           // that count; one more before them warms up
	budget  time.Duration // of one trial
	most    int           // events in one trial
	payload int           // bytes

	list                     bool
	jsonFile                 string
	cpuProfile, allocProfile string
}

const (
	defaultCells = "pub/1,pub/32,batch/1,con/1,con/16,con/256,e2e/16"
	quickCells   = "pub/1,pub/32,batch/1,con/1,con/16,e2e/16"
	mostEvents   = 200_000 // what every target can hold
)

func parsePlan(args []string, out io.Writer) (plan, error) {
	var p plan
	var names, cells string
	var quick bool
	f := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&names, "targets", "all", "comma-separated targets; see -list")
	f.StringVar(&cells, "cells", defaultCells, "comma-separated cells")
	f.IntVar(&p.runs, "runs", 10, "interleaved runs, after one that warms up")
	f.DurationVar(&p.budget, "budget", 200*time.Millisecond, "aim for this long per trial: the number of events follows the rate")
	f.IntVar(&p.most, "n", mostEvents, "at most this many events per trial")
	f.IntVar(&p.payload, "payload", 256, "bytes of payload")
	f.BoolVar(&quick, "quick", false, "7 runs of 60 ms per trial, without con/256: under a minute")
	f.BoolVar(&p.list, "list", false, "list the targets")
	f.StringVar(&p.jsonFile, "json", "", "write every single result to this file")
	f.StringVar(&p.cpuProfile, "cpuprofile", "", "write a CPU profile; use it with one target and one cell")
	f.StringVar(&p.allocProfile, "allocprofile", "", "write a profile of every allocation, likewise; rates mean nothing then")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if quick {
		p.runs, p.budget = 7, 60*time.Millisecond
		if cells == defaultCells {
			cells = quickCells
		}
	}
	if p.runs < 1 || p.budget <= 0 || p.payload < 1 || p.most < leastEvents || p.most > mostEvents {
		return p, fmt.Errorf("-runs, -budget and -payload must be positive, -n from %d to %d", leastEvents, mostEvents)
	}
	var err, err2 error
	p.targets, err = chosenTargets(names)
	p.cells, err2 = parseCells(cells)
	return p, errors.Join(err, err2)
}

// chosenTargets returns those named, in the order of the list.
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
