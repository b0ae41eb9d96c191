package main

import (
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/benchmarks/internal/svg"
)

// The sizes of a panel, which shows one broker: the backlog above the handlers.
const (
	panelWidth = 380.0
	left       = 60.0 // of the plots in a panel
	plotWidth  = panelWidth - left - 20
	lagTop     = 84.0
	lagHeight  = 130.0
	stepTop    = lagTop + lagHeight + 34
	stepHeight = 70.0
	bottom     = stepTop + stepHeight
)

const (
	lagColor  = "#0969da"
	stepColor = "#bc4c00"
)

var titles = map[string]string{"redis": "Redis", "nats": "NATS"}

// draw draws a panel for each result.
func draw(file string, p plan, results []result) error {
	d := &svg.Drawing{Width: panelWidth * float64(max(len(results), 2)), Height: bottom + 56}
	d.Text(16, 26, "start", svg.Title, fmt.Sprintf("A backlog of %s events, and 1 to %d handlers that take %s each", thousands(p.events), p.most, millis(p.run)))
	var longest time.Duration
	for _, r := range results {
		longest = max(longest, r.ended)
	}
	for i, r := range results {
		r.draw(d, p, float64(i)*panelWidth, longest)
	}
	d.Text(16, bottom+42, "start", svg.Small, fmt.Sprintf("Package scale with poll %s, hysteresis %s and cooldown %s: its defaults, divided by %d so that the run is short.",
		millis(p.poll()), millis(p.hysteresis()), millis(p.cooldown()), p.faster))
	return d.Write(file, "How the number of handlers follows a backlog, on Redis and on NATS")
}

// draw draws the panel of a result. edge is the left edge of the panel, and longest the length of
// the time axis.
func (r result) draw(d *svg.Drawing, p plan, edge float64, longest time.Duration) {
	x := func(at time.Duration) float64 { return edge + left + at.Seconds()/longest.Seconds()*plotWidth }
	y := func(top, height, value, most float64) float64 { return top + height - value/most*height }
	lagY := func(events float64) float64 { return y(lagTop, lagHeight, events, float64(p.events)) }
	stepY := func(handlers int) float64 { return y(stepTop, stepHeight, float64(handlers), float64(p.most)) }

	_, reached := r.top()
	d.Text(edge+16, 52, "start", svg.Bold, titles[r.name])
	d.Text(edge+left, 52, "start", svg.Small, fmt.Sprintf("%d after %.0f s, all handled after %.0f s, 1 after %.0f s",
		p.most, reached.Seconds(), r.handled.Seconds(), r.back().Seconds()))
	axis := func(at float64, name string) {
		d.Line(x(0), at, x(longest), at, svg.Grid)
		d.Text(x(0)-8, at+4, "end", svg.Small, name)
	}
	d.Text(x(0), lagTop-8, "start", svg.Plain+`fill="`+lagColor+`"`, "lag, events")
	for _, events := range []int{0, p.events / 2, p.events} {
		axis(lagY(float64(events)), thousands(events))
	}
	d.Text(x(0), stepTop-8, "start", svg.Plain+`fill="`+stepColor+`"`, "handlers")
	for _, handlers := range []int{0, p.most / 2, p.most} {
		axis(stepY(handlers), fmt.Sprint(handlers))
	}
	for at, every := time.Duration(0), tick(longest); at <= longest; at += every {
		d.Text(x(at), bottom+16, "middle", svg.Small, fmt.Sprintf("%g s", at.Seconds()))
	}

	var lags []svg.Point
	for _, l := range r.lags {
		lags = append(lags, svg.Point{X: x(l.at), Y: lagY(float64(l.events))})
	}
	d.Polyline(lagColor, lags)
	now := 1
	steps := []svg.Point{{X: x(0), Y: stepY(now)}}
	for _, s := range r.steps {
		steps = append(steps, svg.Point{X: x(s.at), Y: stepY(now)}, svg.Point{X: x(s.at), Y: stepY(s.handlers)})
		now = s.handlers
	}
	d.Polyline(stepColor, append(steps, svg.Point{X: x(r.ended), Y: stepY(now)}))
}

// tick returns a round time of which an axis has at most seven.
func tick(longest time.Duration) time.Duration {
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		if longest/d < 7 {
			return d
		}
	}
	return time.Minute
}

// thousands returns n with a comma, such as 50,000.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond))
}
