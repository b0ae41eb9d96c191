package main

import (
	"fmt"
	"io"
	"strings"
)

// A goal is a required result of one cell of one target. It requires a median ratio to the
// raw client of the same broker, and median ratios to peers.
type goal struct {
	what     string
	target   string
	cell     string
	measure  measure
	required float64 // required ratio to the raw client; 0: none, because a ratio to a peer is required in its place
	aim      float64 // ratio that the project would like to reach; 0: none
	peers    []peerGoal
	allocs   float64 // most allocations for each event; 0: no bound
}

type peerGoal struct {
	name     string
	required float64
}

// A measure is a quantity in the results, such as the events per second. Goals compare its
// ratios.
type measure struct {
	name  string
	of    func(cost) float64
	least bool // true if a smaller value is better
}

var (
	byRate    = measure{"", rate, false}
	byLatency = measure{"p50", func(c cost) float64 { return c.P50 }, true}
	byCPU     = measure{"CPU", func(c cost) float64 { return c.CPUSeconds }, true}
)

func rate(c cost) float64 { return c.PerSecond }

// goals are the goals of the project.
var goals = []goal{
	{"Redis publish, 1 goroutine", "eventbus-redis", "pub/1", byRate, 0.85, 1, []peerGoal{{"wm-redis", 0.9}}, 6},
	{"Redis publish, 32 goroutines", "eventbus-redis", "pub/32", byRate, 1.3, 1.8, []peerGoal{{"wm-redis", 2}, {"asynq", 2.5}}, 6},
	{"Redis batch of 100", "eventbus-redis", "batch/1", byRate, 0.8, 1.1, []peerGoal{{"wm-redis", 8}, {"asynq", 10}}, 4},
	{"Redis consume, 1 handler", "eventbus-redis", "con/1", byRate, 0.8, 1.2, []peerGoal{{"wm-redis", 15}, {"asynq", 40}}, 6},
	{"Redis consume, 16 handlers", "eventbus-redis", "con/16", byRate, 0.8, 1.3, []peerGoal{{"wm-redis", 7}, {"asynq", 20}}, 6},
	{"Redis consume, 256 handlers", "eventbus-redis", "con/256", byRate, 0.75, 1.1, []peerGoal{{"wm-redis", 8}}, 6},
	{"Redis end to end", "eventbus-redis", "e2e/16", byRate, 1.3, 1.7, []peerGoal{{"wm-redis", 3}, {"asynq", 8}}, 12},
	{"Redis 16 KiB, consume, 16 handlers", "eventbus-redis", "con/16@16K", byRate, 0.9, 1.3, []peerGoal{{"wm-redis", 2}}, 8},
	{"NATS publish, 1 goroutine", "eventbus-nats", "pub/1", byRate, 0, 0, []peerGoal{{headedNATS, 0.9}, {"wm-nats", 0.9}}, 20},
	{"NATS publish, 32 goroutines", "eventbus-nats", "pub/32", byRate, 0, 0, []peerGoal{{headedNATS, 0.9}, {"wm-nats", 1}}, 10},
	{"NATS batch of 100", "eventbus-nats", "batch/1", byRate, 0, 0, []peerGoal{{headedNATS, 0.9}, {"wm-nats", 6}}, 10},
	{"NATS consume, 1 handler", "eventbus-nats", "con/1", byRate, 0, 0, []peerGoal{{headedNATS, 0.85}, {"wm-nats", 3}}, 12},
	{"NATS consume, 16 handlers", "eventbus-nats", "con/16", byRate, 0, 0, []peerGoal{{headedNATS, 0.85}, {"wm-nats", 3}}, 12},
	{"NATS end to end", "eventbus-nats", "e2e/16", byRate, 0, 0, []peerGoal{{headedNATS, 0.9}, {"wm-nats", 1}}, 24},
	{"memory end to end", "eventbus-mem", "e2e/16", byRate, 0.15, 0.35, []peerGoal{{"wm-gochannel", 2.5}, {"gocloud-mem", 5}}, 4},
	{"Redis latency at 500/s", "eventbus-redis", "lat/500", byLatency, 1.15, 0, []peerGoal{{"wm-redis", 1}}, 0},
	{"NATS latency at 500/s", "eventbus-nats", "lat/500", byLatency, 0, 0, []peerGoal{{headedNATS, 1.2}, {"wm-nats", 1}}, 0},
	{"Redis consume, 16 handlers", "eventbus-redis", "con/16", byCPU, 1, 0, []peerGoal{{"wm-redis", 0.2}}, 0},
	{"NATS consume, 16 handlers", "eventbus-nats", "con/16", byCPU, 0, 0, []peerGoal{{headedNATS, 1.3}, {"wm-nats", 0.3}}, 0},
}

// A finding is the measured result for one goal.
type finding struct {
	What     string   `json:"what"`
	Ratio    float64  `json:"ratio"`
	Required float64  `json:"required"`
	Aim      float64  `json:"aim,omitempty"`
	Allocs   float64  `json:"allocs"`
	Missed   []string `json:"missed"` // requirements that were not reached
	AimMet   bool     `json:"aim_reached"`

	goal   goal
	around spread
	peers  []string
}

// judge returns a finding for each goal whose cell was measured.
func (r report) judge() (found []finding) {
	for _, g := range goals {
		if f, ok := r.judgeOne(g); ok {
			found = append(found, f)
		}
	}
	return found
}

func (r report) judgeOne(g goal) (f finding, ok bool) {
	c, err := parseCell(g.cell)
	if err != nil {
		return f, false
	}
	t := targetNamed(g.target)
	s, ok := r.ratio(g.target, t.base, c, g.measure.of)
	if !ok {
		return f, false
	}
	f = finding{What: g.what, Ratio: s.median, Required: g.required, Aim: g.aim, goal: g, around: s, Missed: []string{}}
	f.Allocs = r.median(g.target, c, func(c cost) float64 { return c.Allocs })
	if g.required > 0 && !g.measure.reaches(s.median, g.required) {
		f.Missed = append(f.Missed, fmt.Sprintf("%.2f to %s", s.median, t.base))
	}
	f.AimMet = g.aim > 0 && g.measure.reaches(s.median, g.aim)
	for _, p := range g.peers {
		s, ok := r.ratio(g.target, p.name, c, g.measure.of)
		if !ok {
			continue
		}
		f.peers = append(f.peers, fmt.Sprintf("%s %.3gx (%s)", p.name, s.median, g.measure.bound(p.required)))
		if !g.measure.reaches(s.median, p.required) {
			f.Missed = append(f.Missed, fmt.Sprintf("%.3gx %s", s.median, p.name))
		}
	}
	if g.allocs > 0 && f.Allocs > g.allocs+0.05 {
		f.Missed = append(f.Missed, fmt.Sprintf("%.1f allocations", f.Allocs))
	}
	return f, true
}

func (m measure) reaches(value, required float64) bool {
	if m.least {
		return value <= required
	}
	return value >= required
}

// bound returns the text of a required ratio, such as "≥ 0.9".
func (m measure) bound(required float64) string {
	if required == 0 {
		return "–"
	}
	if m.least {
		return fmt.Sprintf("≤ %g", required)
	}
	return fmt.Sprintf("≥ %g", required)
}

// writeGoals writes the table of goals.
func (r report) writeGoals(w io.Writer) {
	found := r.judge()
	if len(found) == 0 {
		return
	}
	fmt.Fprintln(w, "| cell | to the raw client, median (quartiles) | required | aim | to peers (required) | allocs/event (at most) | reached |")
	fmt.Fprintln(w, "|---|--:|--:|--:|---|--:|---|")
	for _, f := range found {
		g := f.goal
		what := g.what
		if g.measure.name != "" {
			what += ", " + g.measure.name
		}
		aim, allocs, reached := "–", "–", "required"
		if g.aim > 0 {
			aim = fmt.Sprintf("%g", g.aim)
		}
		if g.allocs > 0 {
			allocs = fmt.Sprintf("%.1f (%.0f)", f.Allocs, g.allocs)
		}
		switch {
		case len(f.Missed) > 0:
			reached = "**no**: " + strings.Join(f.Missed, ", ")
		case f.AimMet:
			reached = "aim"
		}
		fmt.Fprintf(w, "| %s | **%.2f** (%.2f–%.2f) | %s | %s | %s | %s | %s |\n", what, f.Ratio, f.around.low, f.around.high,
			g.measure.bound(g.required), aim, strings.Join(f.peers, ", "), allocs, reached)
	}
	fmt.Fprintln(w)
}

func targetNamed(name string) target {
	for _, t := range targets {
		if t.name == name {
			return t
		}
	}
	return target{}
}
