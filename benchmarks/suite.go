package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// A suite runs the plan.
type suite struct {
	plan     plan
	progress io.Writer
	env      env
	results  []result
	took     time.Duration
}

// A result is one trial that counts.
type result struct {
	Target    string `json:"target"`
	Cell      cell   `json:"cell"`
	Run       int    `json:"run"`
	Payload   int    `json:"payload"`
	Unsettled int64  `json:"unsettled"` // after consuming; -1: not asked, or the target cannot tell
	cost
}

// place is a cell of one target.
type place struct {
	target string
	cell   cell
}

const leastEvents = 1000

// run runs all targets of a cell in turn, all cells, as often as planned. Run 0
// warms up and is thrown away. The error says which trials failed.
func (s *suite) run(ctx context.Context) (failure error) {
	if slices.ContainsFunc(s.plan.targets, target.onRedis) {
		var err error
		if s.env.redis, err = startRedis(ctx); err != nil {
			return err
		}
		defer func() { failure = errors.Join(failure, s.env.redis.stop()) }()
	}
	began := time.Now()
	var failed []error
	rate := map[place]float64{} // the last one sets the number of events
	for run := 0; run <= s.plan.runs && ctx.Err() == nil; run++ {
		for _, c := range s.plan.cells {
			for _, t := range s.plan.targets {
				r, err := s.try(ctx, run, c, t, rate)
				if err != nil {
					failed = append(failed, fmt.Errorf("run %d, %s %v: %w", run, t.name, c, err))
				} else if run > 0 {
					s.results = append(s.results, r)
				}
			}
		}
		fmt.Fprintf(s.progress, "run %d of %d done after %v\n", run, s.plan.runs, time.Since(began).Round(time.Second))
	}
	s.took = time.Since(began)
	return errors.Join(append(failed, ctx.Err())...)
}

func (s *suite) try(ctx context.Context, run int, c cell, t target, rate map[place]float64) (r result, err error) {
	p := place{t.name, c}
	n := int(rate[p] * s.plan.budget.Seconds())
	o, err := trial{s.env, meter{s.env.redis.pid()}, t, c, min(max(n, leastEvents), s.plan.most), s.plan.payload}.run(ctx)
	if err == nil && o.unsettled > 0 {
		err = fmt.Errorf("%d events are not settled", o.unsettled)
	}
	if err == nil {
		rate[p] = o.PerSecond
	}
	return result{t.name, c, run, s.plan.payload, o.unsettled, o.cost}, err
}
