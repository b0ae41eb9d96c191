package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/seed41896749/eventbus/benchmarks/internal/svg"
)

var colors = map[string]string{
	"eventbus-mem": "#0969da", "eventbus-redis": "#0969da", "eventbus-nats": "#0969da",
	"wm-gochannel": "#d4a72c", "wm-redis": "#d4a72c", "wm-nats": "#d4a72c", "gocloud-mem": "#8250df", headedNATS: "#57606a", "asynq": "#bc4c00",
}

// drawRatios draws a row for each cell. A row has a dot for each target, at its ratio to
// the raw client.
func (r report) drawRatios(file string) error {
	const left, right, rowHeight, width = 150, 30, 21, 760
	d := &svg.Drawing{Width: width}
	x := func(ratio float64) float64 { // the place of a ratio of 0.005 to 3, on a logarithmic scale
		at := (math.Log10(min(max(ratio, 0.005), 3)) - math.Log10(0.005)) / (math.Log10(3) - math.Log10(0.005))
		return left + at*(width-left-right)
	}
	y := 26.0
	d.Text(16, y, "start", svg.Title, "Events per second, as a multiple of the raw client of the same broker in the same run")
	for _, base := range []string{rawRedis, rawNATS, rawChannel} {
		y += 34
		top := y
		d.Text(16, y, "start", svg.Bold, "to "+base)
		at := x(0.02)
		for _, t := range r.targets() {
			if t.base == base && t.kind != ceiling {
				d.Dot(at, y-4, 4.5, colors[t.name])
				d.Text(at+9, y, "start", svg.Plain, t.name)
				at += 125
			}
		}
		for _, c := range r.cells() {
			if c.op == opLatency || len(r.at(base, c)) == 0 {
				continue
			}
			y += rowHeight
			d.Line(left, y-4, width-right, y-4, svg.Grid)
			d.Text(left-10, y, "end", svg.Plain, c.words())
			for _, t := range r.targets() {
				if s, ok := r.ratio(t.name, base, c, rate); ok && t.base == base && t.kind != ceiling {
					d.Line(x(s.low), y-4, x(s.high), y-4, fmt.Sprintf(`stroke="%s" stroke-width="2" opacity="0.4"`, colors[t.name]))
					d.Dot(x(s.median), y-4, 4.5, colors[t.name])
				}
			}
		}
		d.Line(x(1), top+6, x(1), y+6, svg.Dashed)
		y += 18
		for _, tick := range []float64{0.01, 0.03, 0.1, 0.3, 1, 3} {
			d.Text(x(tick), y, "middle", svg.Small, fmt.Sprint(tick))
		}
	}
	d.Text(16, y+24, "start", svg.Small, "Dots are medians of paired ratios, bars their quartiles; the scale is logarithmic; the dashed line is the raw client.")
	d.Height = y + 40
	return d.Write(file, "Throughput of the bus and of its peers, as a multiple of the raw client")
}

// words returns a description of a cell for the drawing.
func (c cell) words() string {
	s := map[string]string{
		opPublish: "publish from %d", opBatch: "publish by 100", opConsume: "consume with %d", opBoth: "32 publish, %d handle",
	}[c.op]
	if strings.Contains(s, "%d") {
		s = fmt.Sprintf(s, c.n)
	}
	if c.payload > 0 {
		s += ", " + sizeText(c.payload)
	}
	return cmp.Or(s, c.String())
}

var lineColors = map[string]string{"eventbus-mem": "#1a7f37", "eventbus-redis": "#cf222e", "eventbus-nats": "#0969da"}

// drawCurves draws one panel for each curve. It leaves out the curve of memory.
func (r report) drawCurves(file string) error {
	const panelWidth, panelHeight = 380.0, 230.0
	d := &svg.Drawing{Width: 2 * panelWidth}
	n := 0
	for _, c := range curves {
		cells := c.cells()
		if c.op == opMemory || len(r.ourTargets(cells[0])) == 0 {
			continue
		}
		r.drawCurve(d, c, float64(n%2)*panelWidth, float64(n/2)*panelHeight+20, panelWidth, panelHeight)
		n++
	}
	at, y := 20.0, float64((n+1)/2)*panelHeight+36
	for _, t := range targets {
		if t.kind == ours {
			d.Dot(at, y-4, 4.5, lineColors[t.name])
			d.Text(at+9, y, "start", svg.Plain, t.name)
			at += 125
		}
	}
	d.Text(at, y, "start", svg.Small, "ratio of events per second to the raw client, medians")
	d.Height = y + 16
	return d.Write(file, "How throughput grows, as a multiple of the raw client")
}

// drawCurve draws the panel of one curve, whose upper left corner is at left and top.
func (r report) drawCurve(d *svg.Drawing, c curve, left, top, width, height float64) {
	cells := c.cells()
	most := 1.2
	for _, t := range r.ourTargets(cells[0]) {
		for _, cell := range cells {
			s, _ := r.ratio(t.name, t.base, cell, rate)
			most = max(most, s.median*1.1)
		}
	}
	most = min(most, 4)
	x := func(i int) float64 { return left + 50 + float64(i)/float64(max(len(cells)-1, 1))*(width-80) }
	y := func(v float64) float64 { return top + height - 55 - min(v, most)/most*(height-95) }
	d.Text(left+16, top+14, "start", svg.Bold, c.title)
	for _, tick := range []float64{0, 0.5, 1, 1.5, 2, 3, 4} {
		if tick <= most {
			d.Line(x(0), y(tick), x(len(cells)-1), y(tick), svg.Grid)
			d.Text(x(0)-8, y(tick)+4, "end", svg.Small, fmt.Sprint(tick))
		}
	}
	d.Line(x(0), y(1), x(len(cells)-1), y(1), svg.Dashed)
	for i, cell := range cells {
		d.Text(x(i), top+height-36, "middle", svg.Small, c.value(cell))
	}
	for _, t := range r.ourTargets(cells[0]) {
		var points []svg.Point
		for i, cell := range cells {
			if s, ok := r.ratio(t.name, t.base, cell, rate); ok {
				points = append(points, svg.Point{X: x(i), Y: y(s.median)})
				d.Dot(x(i), y(s.median), 3, lineColors[t.name])
			}
		}
		d.Polyline(lineColors[t.name], points)
	}
}
