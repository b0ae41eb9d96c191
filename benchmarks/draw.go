package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"os"
	"strings"
)

// A drawing is the text of an SVG image.
type drawing struct {
	width, height float64
	b             strings.Builder
}

func (d *drawing) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&d.b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style)
}

func (d *drawing) dot(x, y, r float64, color string) {
	fmt.Fprintf(&d.b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, r, color)
}

// text draws s at x and y. anchor tells which point of s is at x: its start, middle or end.
func (d *drawing) text(x, y float64, anchor, style, s string) {
	fmt.Fprintf(&d.b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, style, html.EscapeString(s))
}

func (d *drawing) write(file, title string) error {
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" "+
		"font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#24292f\">\n<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		d.width, d.height, d.width, d.height, html.EscapeString(title))
	return os.WriteFile(file, []byte(head+d.b.String()+"</svg>\n"), 0o600)
}

const (
	bold  = `font-weight="600"`
	plain = ``
	small = `font-size="11" fill="#57606a"`
	grid  = `stroke="#eaeef2"`
	raw   = `stroke="#24292f" stroke-dasharray="4 3"`
)

var colors = map[string]string{
	"eventbus-mem": "#0969da", "eventbus-redis": "#0969da", "eventbus-nats": "#0969da",
	"wm-gochannel": "#d4a72c", "wm-redis": "#d4a72c", "wm-nats": "#d4a72c", "gocloud-mem": "#8250df", headedNATS: "#57606a", "asynq": "#bc4c00",
}

// drawRatios draws a row for each cell. A row has a dot for each target, at its ratio to
// the raw client.
func (r report) drawRatios(file string) error {
	const left, right, rowHeight, width = 150, 30, 21, 760
	d := &drawing{width: width}
	x := func(ratio float64) float64 { // the place of a ratio of 0.005 to 3, on a logarithmic scale
		at := (math.Log10(min(max(ratio, 0.005), 3)) - math.Log10(0.005)) / (math.Log10(3) - math.Log10(0.005))
		return left + at*(width-left-right)
	}
	y := 26.0
	d.text(16, y, "start", bold+` font-size="14"`, "Events per second, as a multiple of the raw client of the same broker in the same run")
	for _, base := range []string{rawRedis, rawNATS, rawChannel} {
		y += 34
		top := y
		d.text(16, y, "start", bold, "to "+base)
		at := x(0.02)
		for _, t := range r.targets() {
			if t.base == base && t.kind != ceiling {
				d.dot(at, y-4, 4.5, colors[t.name])
				d.text(at+9, y, "start", plain, t.name)
				at += 125
			}
		}
		for _, c := range r.cells() {
			if c.op == opLatency || len(r.at(base, c)) == 0 {
				continue
			}
			y += rowHeight
			d.line(left, y-4, width-right, y-4, grid)
			d.text(left-10, y, "end", plain, c.words())
			for _, t := range r.targets() {
				if s, ok := r.ratio(t.name, base, c, rate); ok && t.base == base && t.kind != ceiling {
					d.line(x(s.low), y-4, x(s.high), y-4, fmt.Sprintf(`stroke="%s" stroke-width="2" opacity="0.4"`, colors[t.name]))
					d.dot(x(s.median), y-4, 4.5, colors[t.name])
				}
			}
		}
		d.line(x(1), top+6, x(1), y+6, raw)
		y += 18
		for _, tick := range []float64{0.01, 0.03, 0.1, 0.3, 1, 3} {
			d.text(x(tick), y, "middle", small, fmt.Sprint(tick))
		}
	}
	d.text(16, y+24, "start", small, "Dots are medians of paired ratios, bars their quartiles; the scale is logarithmic; the dashed line is the raw client.")
	d.height = y + 40
	return d.write(file, "Throughput of the bus and of its peers, as a multiple of the raw client")
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
	d := &drawing{width: 2 * panelWidth}
	n := 0
	for _, c := range curves {
		cells := c.cells()
		if c.op == opMemory || len(r.ourTargets(cells[0])) == 0 {
			continue
		}
		d.curve(r, c, float64(n%2)*panelWidth, float64(n/2)*panelHeight+20, panelWidth, panelHeight)
		n++
	}
	at, y := 20.0, float64((n+1)/2)*panelHeight+36
	for _, t := range targets {
		if t.kind == ours {
			d.dot(at, y-4, 4.5, lineColors[t.name])
			d.text(at+9, y, "start", plain, t.name)
			at += 125
		}
	}
	d.text(at, y, "start", small, "ratio of events per second to the raw client, medians")
	d.height = y + 16
	return d.write(file, "How throughput grows, as a multiple of the raw client")
}

func (d *drawing) curve(r report, c curve, left, top, width, height float64) {
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
	d.text(left+16, top+14, "start", bold, c.title)
	for _, tick := range []float64{0, 0.5, 1, 1.5, 2, 3, 4} {
		if tick <= most {
			d.line(x(0), y(tick), x(len(cells)-1), y(tick), grid)
			d.text(x(0)-8, y(tick)+4, "end", small, fmt.Sprint(tick))
		}
	}
	d.line(x(0), y(1), x(len(cells)-1), y(1), raw)
	for i, cell := range cells {
		d.text(x(i), top+height-36, "middle", small, c.value(cell))
	}
	for _, t := range r.ourTargets(cells[0]) {
		var points []string
		for i, cell := range cells {
			if s, ok := r.ratio(t.name, t.base, cell, rate); ok {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(s.median)))
				d.dot(x(i), y(s.median), 3, lineColors[t.name])
			}
		}
		fmt.Fprintf(&d.b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n", lineColors[t.name], strings.Join(points, " "))
	}
}
