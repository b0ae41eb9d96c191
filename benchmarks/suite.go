package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A suite runs the trials of a plan and keeps their results.
type suite struct {
	plan     plan
	progress io.Writer
	profile  *profile
	env      env
	results  []result
	took     time.Duration
}

// A result is the result of one trial that counts.
type result struct {
	Target    string `json:"target"`
	Cell      cell   `json:"cell"`
	Run       int    `json:"run"`
	Payload   int    `json:"payload"`
	Unsettled int64  `json:"unsettled"` // unsettled events after consuming; -1: unknown
	cost
}

// A trialKey is one cell of one target.
type trialKey struct {
	target string
	cell   cell
}

// run runs each cell on all targets, one after another, as often as the plan says. Run 0
// warms up, and its results do not count. A failed trial does not count either. The error
// names the failed trials of this project's targets. Failed trials of peers are only
// printed.
func (s *suite) run(ctx context.Context) (failure error) {
	var err error
	if s.env, err = startBrokers(ctx, s.plan.targets); err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, s.env.stop()) }()
	began := time.Now()
	var failed []error
	rate := map[trialKey]float64{} // events per second in the previous trial, which decides the number of events in the next one
	for run := 0; run <= s.plan.runs && ctx.Err() == nil && (run <= 1 || s.hasTime(began, run)); run++ {
		for _, c := range s.plan.cells {
			for _, t := range s.plan.targets {
				if !t.does(c) {
					continue
				}
				r, err := s.try(ctx, run, c, t, rate)
				switch err = about(err, run, t, c); {
				case err != nil && t.kind == ours:
					failed = append(failed, err)
				case err != nil:
					fmt.Fprintln(s.progress, err)
				case run > 0:
					s.results = append(s.results, r)
				}
			}
		}
		fmt.Fprintf(s.progress, "run %d of %d done after %v\n", run, s.plan.runs, time.Since(began).Round(time.Second))
	}
	s.took = time.Since(began)
	return errors.Join(append(failed, ctx.Err())...)
}

// hasTime reports whether one more run fits into the time of the plan. It assumes that the
// run takes as long as the average of the earlier runs.
func (s *suite) hasTime(began time.Time, runs int) bool {
	took := time.Since(began)
	return s.plan.within == 0 || took+took/time.Duration(runs) < s.plan.within
}

func about(err error, run int, t target, c cell) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("run %d, %s %v: %w", run, t.name, c, err)
}

func (s *suite) try(ctx context.Context, run int, c cell, t target, rate map[trialKey]float64) (r result, err error) {
	p := trialKey{t.name, c}
	payload := cmp.Or(c.payload, s.plan.payload)
	n := s.plan.events(c, payload, rate[p])
	env := s.env
	env.payload = payload
	o, err := trial{env, env.meter(t, s.profile), t, c, n, payload}.run(ctx)
	if err == nil && o.unsettled > 0 {
		err = fmt.Errorf("%d events are not settled", o.unsettled)
	}
	if err == nil {
		rate[p] = o.PerSecond
	}
	return result{t.name, c, run, payload, o.unsettled, o.cost}, err
}
